"""Checks of an environment as a program: building, Gymnasium's API, wrappers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium.utils.passive_env_checker import env_reset_passive_checker, env_step_passive_checker

from algorithm.core.errors import GYMNASIUM, described
from algorithm.core.wording import counted
from algorithm.env.pool.process_exit import exits_as_errors
from algorithm.extras.check.context import CheckContext, EnvInstance, random_policy
from algorithm.extras.check.episode_stats import collect_stats
from algorithm.extras.check.finding import Finding, FindingError, error, format_trace, note, ok, warning

_SIGNATURES = GYMNASIUM.partition("\n")[2]
_RESULTS = {
    "reset": "(observation, info)",
    "step": "(observation, reward, terminated, truncated, info)",
}
_MARKUP = re.compile(r"\x1b\[[0-9;]*m|^WARN: ")  # colours and label of Gymnasium's logger
_OURS = "is not within the observation space"  # our own checks report that of all steps, and where


def check_build(context: CheckContext) -> Iterator[Finding]:
    """Check that the environment can be built and wrapped, and has supported spaces."""
    with context.instance() as instance:
        yield ok(instance.env.name)
        yield ok(f"action: {instance.spec.action.description}")


def check_interface(context: CheckContext) -> Iterator[Finding]:
    """Report the warnings of Gymnasium's own checker about reset and step, without wrappers."""
    seed, options = context.config.seed_of(0), dict(context.config.options or {}) or None
    with context.instance() as instance, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bare = instance.bare.unwrapped
        _check_call("reset", lambda: env_reset_passive_checker(bare, seed=seed, options=options))
        action = _first_action(instance, seed)
        _check_call("step", lambda: env_step_passive_checker(bare, action))
    texts = dict.fromkeys(_MARKUP.sub("", _MARKUP.sub("", str(each.message))) for each in caught)
    for text in texts:
        if _OURS not in text:
            yield note(
                text, why="reported by Gymnasium's checker; it is converted here, other libraries refuse it"
            )


def check_random_steps(context: CheckContext) -> Iterator[Finding]:
    """Report what ended the random episodes early."""
    stats = context.cached(collect_stats)
    if stats.flaw is not None:
        yield stats.flaw
    yield ok(f"{counted(stats.steps, 'step')} with random actions, {counted(len(stats.episodes), 'episode')}")


def check_wrappers(context: CheckContext) -> Iterator[Finding]:
    """Report wrappers that keep running statistics, which no checkpoint holds."""
    for remark in context.cached(collect_stats).wrappers:
        yield warning(**remark._asdict())


def _check_call(call: str, run: Callable[[], object]) -> None:
    """Call reset or step. Raises FindingError for a wrong result, and if the call fails."""
    try:
        with exits_as_errors():
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


def _first_action(instance: EnvInstance, seed: int) -> Any:  # noqa: ANN401 - a space may hold anything
    """Begin an episode; return an allowed action, as the unwrapped environment takes it."""
    mask = instance.reset(seed).mask
    bare = instance.bare.unwrapped
    if instance.bare.action_space != bare.action_space:  # a wrapper changes actions
        bare.action_space.seed(0)
        return bare.action_space.sample()
    return instance.env.actions.to_env(
        random_policy(instance.spec.action, np.random.default_rng(0), mask[None])
    )
