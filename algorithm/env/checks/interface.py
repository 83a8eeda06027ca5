"""Checks of the interface: building, Gymnasium's API, random steps, rendering."""

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

_INFO_FIX = "return a dict, an empty one without information"


def check_build(context: CheckContext) -> Iterator[Finding]:
    """Check that it can be built, wrapped, and has supported spaces."""
    with context.instance() as instance:
        yield ok(f"{instance.name}, made in {instance.seconds['make']:.2g} s")
        yield ok(f"action: {instance.spec.action.description}")


def check_vector_class(context: CheckContext) -> Iterator[Finding]:
    """Check whether a training runs the same class."""
    if context.config.vector_class:
        yield note(
            f"a training steps {context.config.n_envs} environments by the environment's own vector class",
            why="single instances are checked here, one by one",
        )
    yield ok("single environments, as checked here")


def check_interface(context: CheckContext) -> Iterator[Finding]:
    """Check reset and step without wrappers, which would fail in other places."""
    with context.instance() as instance:
        bare = instance.env.unwrapped
        bare.action_space.seed(0)
        seed, options = context.config.seed_of(0), dict(context.config.options or {}) or None
        result = _call(instance, "reset", lambda: bare.reset(seed=seed, options=options))
        if not isinstance(result, tuple) or len(result) != 2:
            raise FindingError(wrong_result("reset", result))
        yield from _info("reset", result[1])
        result = _call(instance, "step", lambda: bare.step(_allowed_action(instance, result)))
        if not isinstance(result, tuple) or len(result) != 5:
            raise FindingError(wrong_result("step", result))
        yield from _info("step", result[4])
        yield from _ends(result[2], result[3])
    yield ok("reset and step return what gymnasium.Env documents")


def check_random_steps(context: CheckContext) -> Iterator[Finding]:
    """Report what ended the random episodes early."""
    found = context.cached(collect_stats)
    if found.flaw is not None:
        yield found.flaw
    yield ok(f"{plural(found.steps, 'step')} with random actions, {plural(len(found.episodes), 'episode')}")


def check_render_modes(context: CheckContext) -> Iterator[Finding]:
    """Report the render modes."""
    modes = context.cached(collect_stats).render_modes
    for mode, missing in (("human", "--render shows no window"), ("rgb_array", "--video records nothing")):
        if mode not in modes:
            yield note(f"no render mode {mode!r}: {missing}", why=f"metadata['render_modes'] is {modes}")
    yield ok("render modes " + ", ".join(map(str, modes)) if modes else "cannot be rendered")


def check_wrappers(context: CheckContext) -> Iterator[Finding]:
    """Check for wrappers whose statistics no checkpoint holds."""
    for remark in context.cached(collect_stats).wrappers:
        yield warning(**remark._asdict())
    yield ok("none keeps statistics of its own")


def check_step_after_end(context: CheckContext) -> Iterator[Finding]:
    """Check a step after the end, which only other programs take."""
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
    yield ok("taken without an error; a training never takes one")


def _allowed_action(instance: EnvInstance, started: tuple[Any, Any]) -> Any:  # noqa: ANN401 - a space may hold anything
    """Return an action of the unwrapped environment; wrappers may change the action space."""
    bare = instance.env.unwrapped
    if instance.env.action_space != bare.action_space:
        return bare.action_space.sample()
    try:
        mask = instance.adapter.masks.read(*started, over=False)
    except SpaceMismatchError:  # the check of observations reports it
        mask = None
    allowed = instance.spec.action.all_allowed() if mask is None else mask
    return instance.adapter.actions.to_env(
        instance.spec.action.random(np.random.default_rng(0), allowed[None])[0][0]
    )


def _call(instance: EnvInstance, call: str, run: Any) -> Any:  # noqa: ANN401 - whatever the environment returns
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
                why="action masks and more are read from it",
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
                f"{name} is a {type(value).__name__}, not a bool: {value!r:.40}",
                why="it is taken as true or false, which may not be its meaning",
                fix=f"return bool({name})",
            )
