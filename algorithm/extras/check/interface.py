"""Checks of an environment as a program: building, Gymnasium's API, speed, memory and open files."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
from gymnasium.utils.passive_env_checker import env_reset_passive_checker, env_step_passive_checker

from algorithm.core.errors import GYMNASIUM, described
from algorithm.core.system.processes import count_handles
from algorithm.core.wording import counted
from algorithm.extras.check.context import CheckContext, EnvInstance, play, random_policy
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
    if context.config.vector_class:
        yield note(
            f"training steps {context.config.n_envs} environments with the environment's own vector class",
            why="only single instances are checked here",
        )


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


def check_render_modes(context: CheckContext) -> Iterator[Finding]:
    """Report the render modes; note missing ones that an option of the command needs."""
    modes = context.cached(collect_stats).instance.env.render_modes
    for mode, missing in (("human", "--render shows no window"), ("rgb_array", "--video records nothing")):
        if mode not in modes:
            yield note(f"no render mode {mode!r}: {missing}", why=f"metadata['render_modes'] is {[*modes]}")
    yield ok("render modes " + ", ".join(map(str, modes)))


def check_wrappers(context: CheckContext) -> Iterator[Finding]:
    """Report wrappers that keep running statistics, which no checkpoint holds."""
    for remark in context.cached(collect_stats).wrappers:
        yield warning(**remark._asdict())


def _check_call(call: str, run: Callable[[], object]) -> None:
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


WORKER_MS = 0.3
"""Additional cost of a step in a worker process, in milliseconds (docs/performance.md: 0.15 to 0.3)."""

_PAYS = 3.0  # a step must cost this many times the overhead of a worker
_STEPS = 100  # of an episode at most
_LEAST = 4 * 2**20  # bytes; less is allocator noise


def check_speed(context: CheckContext) -> Iterator[Finding]:
    """Report rates in this process, and whether worker processes would pay."""
    played = context.cached(collect_stats).instance
    seconds, calls = played.seconds, played.calls
    if not calls["step"]:
        yield ok("not checked: there was no step")
        return
    step = seconds["step"] / calls["step"]
    reset = seconds["reset"] / calls["reset"]
    per_step = (seconds["step"] + seconds["reset"]) / calls["step"]
    yield ok(f"{_rate(step)} steps/s, {_rate(reset)} resets/s, {_rate(per_step)} steps/s with resets")
    yield ok(_worker_advice(context, 1000 * per_step))


def check_growth(context: CheckContext) -> Iterator[Finding]:
    """Play many short episodes, and measure memory, open files and threads after each."""
    process, memory, before = psutil.Process(), list[int](), dict[str, int]()
    over, limits = context.deadline(0.5), context.limits
    with context.instance() as instance:
        for now in play(instance, context.config, limit=_STEPS):
            if not (now.over or now.number == _STEPS or over()):
                continue
            memory.append(process.memory_info().rss)
            before = before or _open_resources(process)
            if len(memory) >= limits.episodes or over():
                break
        after = _open_resources(process)
    for what, count in after.items():
        if count - before[what] >= max(3, len(memory) // 4):
            yield warning(
                f"{count - before[what]:,} more {what} after {len(memory):,} episodes",
                why="long training will reach the system's limit",
                fix=f"close what an episode opens before reset opens it again ({what})",
            )
    more, per_episode = memory_growth(memory)
    if more:
        yield warning(
            f"memory grows: {per_episode / 2**10:,.0f} KB an episode",
            where=f"{more / 2**20:,.1f} MB in {len(memory):,} episodes of at most {_STEPS} steps",
            why=f"{per_episode * 10_000 / 2**30:,.1f} GB in 10,000 episodes",
            fix="check what reset or step keeps appending to; worker processes do not fix it",
        )
    yield ok(f"memory, files and threads unchanged after {len(memory):,} episodes")


def memory_growth(memory: list[int]) -> tuple[int, float]:
    """Return the growth of memory as (bytes, bytes an episode); (0, 0) unless it is beyond doubt.

    memory: in bytes, after each episode

    Growth is beyond doubt where every measurement of the last third exceeds every one of the middle third;
    the first third may fill caches.
    """
    third = len(memory) // 3
    if third < 3:
        return 0, 0.0
    middle, last = memory[third : 2 * third], memory[-third:]
    more = memory[-1] - middle[0]
    if min(last) <= max(middle) or more < _LEAST:
        return 0, 0.0
    return more, more / (len(memory) - 1 - third)


def _open_resources(process: psutil.Process) -> dict[str, int]:
    """Return the numbers of open files and threads of a process."""
    return {"open files": count_handles(process), "threads": process.num_threads()}


def _rate(seconds: float) -> str:
    """Return how often something of that duration fits in a second, as text."""
    return f"{1 / max(seconds, 1e-9):,.0f}" if seconds < 1 else f"{1 / seconds:.2g}"


def _worker_advice(context: CheckContext, step_ms: float) -> str:
    """Return a sentence on whether workers pay, by the milliseconds of a step.

    It is a rule of thumb: the cost of an update matters as much and is not known here.
    """
    cores, setting = os.cpu_count() or 1, context.config
    if step_ms < _PAYS * WORKER_MS:
        verdict = "workers are not worth it: a worker's overhead is as large as a step"
    elif cores < 2:
        verdict = "workers are not worth it on a single core"
    elif setting.n_envs < 2:
        verdict = "workers help with several environments (n_envs), at most one per core"
    else:
        verdict = f"up to {min(cores, setting.n_envs)} workers may help"
    return f"{step_ms:.2g} ms a step: {verdict}"
