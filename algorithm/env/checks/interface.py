"""Can it be made, does it speak Gymnasium's interface, does it keep going?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from algorithm.env.checks.context import (
    CheckContext,
    EnvInstance,
    call_failed,
    format_trace,
    not_boolean,
    wrong_result,
)
from algorithm.env.checks.episode_stats import collect_stats
from algorithm.env.checks.finding import Finding, FindingError, error, note, ok, plural, warning
from algorithm.env.single import SpaceMismatchError, as_bool

_INFO_FIX = "return a dict, an empty one if there is nothing to tell"


def can_be_made(context: CheckContext) -> Iterator[Finding]:
    """Built, wrapped, its spaces served."""
    with context.instance() as instance:
        yield ok(f"{instance.name}, made in {instance.seconds['make']:.2g} s")
        yield ok(f"action: {instance.spec.action.description}")


def is_run_as_it_is_looked_at(context: CheckContext) -> Iterator[Finding]:
    """Whether a training runs the same class."""
    if context.config.vector_class:
        yield note(
            f"a training steps its {context.config.n_envs} copies by the environment's own vector class",
            why="here single copies are looked at, one by one",
        )
    yield ok("single copies, as looked at here")


def speaks_the_interface(context: CheckContext) -> Iterator[Finding]:
    """Bare of wrappers, which would fail in places of their own."""
    with context.instance() as instance:
        bare = instance.env.unwrapped
        bare.action_space.seed(0)
        seed, options = context.config.seed_of(0), dict(context.config.options or {}) or None
        result = _called(instance, "reset", lambda: bare.reset(seed=seed, options=options))
        if not isinstance(result, tuple) or len(result) != 2:
            raise FindingError(wrong_result("reset", result))
        yield from _info("reset", result[1])
        result = _called(instance, "step", lambda: bare.step(_allowed_action(instance, result)))
        if not isinstance(result, tuple) or len(result) != 5:
            raise FindingError(wrong_result("step", result))
        yield from _info("step", result[4])
        yield from _ends(result[2], result[3])
    yield ok("reset and step return what gymnasium.Env documents")


def keeps_going(context: CheckContext) -> Iterator[Finding]:
    """What ended the long look early, if anything did."""
    found = context.cached(collect_stats)
    if found.flaw is not None:
        yield found.flaw
    yield ok(f"{plural(found.steps, 'step')} with random actions, {plural(len(found.episodes), 'episode')}")


def can_be_shown(context: CheckContext) -> Iterator[Finding]:
    """Which ways of rendering it names."""
    modes = context.cached(collect_stats).render_modes
    for mode, missing in (("human", "--render shows no window"), ("rgb_array", "--video films nothing")):
        if mode not in modes:
            yield note(f"no render mode {mode!r}: {missing}", why=f"metadata['render_modes'] is {modes}")
    yield ok("render modes " + ", ".join(map(str, modes)) if modes else "cannot be rendered")


def survives_a_step_after_the_end(context: CheckContext) -> Iterator[Finding]:
    """A training never takes such a step; other programs do."""
    with context.instance() as instance:
        rng, over = np.random.default_rng(0), context.deadline()
        now: Any = instance.reset(context.config.seed_of(0))
        for _ in range(context.limits.steps):
            now = instance.step(instance.spec.action.random(rng, now.mask[None])[0][0])
            if now.terminated or now.truncated or over():
                break
        if not (now.terminated or now.truncated):
            yield ok("not tried: no episode ended")
            return
        try:
            instance.step(instance.spec.action.random(rng, instance.spec.action.all_allowed(1))[0][0])
        except FindingError as flaw:
            yield ok(f"refused: {flaw.finding.why:.80}")
            return
    yield ok("taken without complaint; a training never takes one")


def _allowed_action(instance: EnvInstance, started: tuple[Any, Any]) -> Any:  # noqa: ANN401 - a space may hold anything
    """An action of the bare environment; wrappers may have given it other actions than the agent's."""
    bare = instance.env.unwrapped
    if instance.env.action_space != bare.action_space:
        return bare.action_space.sample()
    try:
        mask = instance.adapter.masks.read(*started, over=False)
    except SpaceMismatchError:  # the long look tells what is wrong with it
        mask = None
    allowed = instance.spec.action.all_allowed() if mask is None else mask
    return instance.adapter.actions.to_env(
        instance.spec.action.random(np.random.default_rng(0), allowed[None])[0][0]
    )


def _called(instance: EnvInstance, call: str, run: Any) -> Any:  # noqa: ANN401 - whatever the environment returns
    try:
        return run()
    except TypeError as failure:
        if call == "reset" and "argument" in str(failure):
            raise FindingError(
                error(
                    "reset does not take seed and options",
                    why=f"TypeError: {failure}",
                    fix="def reset(self, *, seed=None, options=None), with super().reset(seed=seed) first",
                    trace=format_trace(failure),
                )
            ) from failure
        raise FindingError(call_failed(call, instance.name, failure)) from failure
    except Exception as failure:
        raise FindingError(call_failed(call, instance.name, failure)) from failure


def _info(call: str, info: object) -> Iterator[Finding]:
    if not isinstance(info, dict):
        raise FindingError(
            error(
                f"the info of {call} is a {type(info).__name__}",
                why="action masks and more are looked up in it",
                fix=_INFO_FIX,
            )
        )
    yield from ()


def _ends(terminated: object, truncated: object) -> Iterator[Finding]:
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        try:
            as_bool(value, name)
        except SpaceMismatchError as failure:
            raise FindingError(not_boolean(str(failure))) from failure
        if not isinstance(value, bool | np.bool_):
            yield warning(
                f"{name} is a {type(value).__name__} and no bool: {value!r:.40}",
                why="it is taken as true or false, which may not be what it means",
                fix=f"return bool({name})",
            )
