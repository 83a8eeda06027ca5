"""Checks of the interface: building, Gymnasium's API, random steps, rendering."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium.utils.passive_env_checker import env_reset_passive_checker, env_step_passive_checker

from algorithm.core.errors import GYMNASIUM, described
from algorithm.core.wording import counted
from algorithm.env.checks.context import CheckContext, EnvInstance, format_trace, random_policy
from algorithm.env.checks.episode_stats import collect_stats
from algorithm.env.checks.finding import Finding, FindingError, error, note, ok, warning

_SIGNATURES = GYMNASIUM.partition("\n")[2]
_RESULTS = {
    "reset": "(observation, info)",
    "step": "(observation, reward, terminated, truncated, info)",
}
_MARKUP = re.compile(r"\x1b\[[0-9;]*m|^WARN: ")  # colours and label of Gymnasium's logger
_LEFT_TO_US = "is not within the observation space"  # which our own checks say of all steps, and where


def check_build(context: CheckContext) -> Iterator[Finding]:
    """Check that it can be built, wrapped, and has supported spaces."""
    with context.instance() as instance:
        yield ok(instance.env.name)
        yield ok(f"action: {instance.spec.action.description}")
    if context.config.vector_class:
        yield note(
            f"a training steps {context.config.n_envs} environments by the environment's own vector class",
            why="single instances are checked here, one by one",
        )


def check_interface(context: CheckContext) -> Iterator[Finding]:
    """Pass on what Gymnasium's own checker says of reset and step, without wrappers."""
    seed, options = context.config.seed_of(0), dict(context.config.options or {}) or None
    with context.instance() as instance, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bare = instance.bare.unwrapped
        _called("reset", lambda: env_reset_passive_checker(bare, seed=seed, options=options))
        action = _action(instance, seed)
        _called("step", lambda: env_step_passive_checker(bare, action))
    texts = dict.fromkeys(_MARKUP.sub("", _MARKUP.sub("", str(each.message))) for each in caught)
    for text in texts:
        if _LEFT_TO_US not in text:
            yield note(
                text, why="Gymnasium's checker says so; it is converted here, other libraries refuse it"
            )


def check_random_steps(context: CheckContext) -> Iterator[Finding]:
    """Report what ended the random episodes early."""
    found = context.cached(collect_stats)
    if found.flaw is not None:
        yield found.flaw
    yield ok(f"{counted(found.steps, 'step')} with random actions, {counted(len(found.episodes), 'episode')}")


def check_render_modes(context: CheckContext) -> Iterator[Finding]:
    """Report the render modes."""
    modes = context.cached(collect_stats).instance.env.render_modes
    for mode, missing in (("human", "--render shows no window"), ("rgb_array", "--video records nothing")):
        if mode not in modes:
            yield note(f"no render mode {mode!r}: {missing}", why=f"metadata['render_modes'] is {[*modes]}")
    yield ok("render modes " + ", ".join(map(str, modes)))


def check_wrappers(context: CheckContext) -> Iterator[Finding]:
    """Check for wrappers whose statistics no checkpoint holds."""
    for remark in context.cached(collect_stats).wrappers:
        yield warning(**remark._asdict())


def _called(call: str, run: Callable[[], object]) -> None:
    """Call reset or step. Raises FindingError for a wrong result, and if the call fails."""
    try:
        result = run()
    except Exception as failure:
        raise FindingError(
            error(
                f"{call} is not as gymnasium.Env documents it",
                why=described(failure),
                fix=_SIGNATURES,
                trace=format_trace(failure),
            )
        ) from failure
    if isinstance(result, tuple) and len(result) == _RESULTS[call].count(",") + 1:
        return
    returned = counted(len(result), "value") if isinstance(result, tuple) else f"a {type(result).__name__}"
    raise FindingError(
        error(
            f"{call} returns {returned} instead of {_RESULTS[call]}",
            why="that is the interface of the old gym package, or a mistake",
            fix=f"{GYMNASIUM}\ndone becomes terminated (the task ended) and truncated (a limit cut it off)",
        )
    )


def _action(instance: EnvInstance, seed: int) -> Any:  # noqa: ANN401 - a space may hold anything
    """Begin an episode; return an allowed action of the unwrapped environment."""
    mask = instance.reset(seed).mask
    bare = instance.bare.unwrapped
    if instance.bare.action_space != bare.action_space:  # a wrapper changes actions
        bare.action_space.seed(0)
        return bare.action_space.sample()
    return instance.env.actions.to_env(
        random_policy(instance.spec.action, np.random.default_rng(0), mask[None])
    )
