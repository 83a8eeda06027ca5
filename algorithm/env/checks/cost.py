"""Checks of speed, and of memory, files and threads that remain."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import psutil

from algorithm.core.system.processes import count_handles
from algorithm.env.checks.context import CheckContext
from algorithm.env.checks.episode_stats import collect_stats, random_action
from algorithm.env.checks.finding import Finding, note, ok, warning

WORKER_MS = 0.3
"""Additional cost of a step in a worker process, in milliseconds (docs/performance.md: 0.15 to 0.3)."""

_PAYS = 3.0  # a step must cost this many times the overhead of a worker
_STEPS = 100  # of an episode at most
_CLOSED = 3  # instances
_LEAST = 4 * 2**20  # bytes; less is allocator noise


def check_speed(context: CheckContext) -> Iterator[Finding]:
    """Report rates in this process, and whether worker processes would pay."""
    found = context.cached(collect_stats)
    if not found.calls.get("step"):
        yield ok("not checked: there was no step")
        return
    step = found.seconds["step"] / found.calls["step"]
    reset = found.seconds["reset"] / max(1, found.calls["reset"])
    per_step = (found.seconds["step"] + found.seconds["reset"]) / found.calls["step"]
    yield ok(f"{_rate(step)} steps/s, {_rate(reset)} resets/s, {_rate(per_step)} steps/s with resets")
    yield ok(_workers(context, 1000 * per_step))


def check_growth(context: CheckContext) -> Iterator[Finding]:
    """Check memory, open files and threads over many episodes."""
    found = context.cached(measure_growth)
    for what, count in found.left.items():
        if count > 0:
            yield warning(
                f"{count:,} {what} more after {found.episodes:,} episodes",
                why="a long training runs into the system's limit",
                fix=f"close what an episode opens before reset opens it again ({what})",
            )
    grown, per_episode = found.grown, found.per_episode
    if grown:
        yield warning(
            f"memory grows: {per_episode / 2**10:,.0f} KB an episode",
            where=f"{grown / 2**20:,.1f} MB in {found.episodes:,} episodes of at most {_STEPS} steps",
            why=f"{per_episode * 10_000 / 2**30:,.1f} GB in 10,000 episodes",
            fix="check what reset or step keeps appending to; worker processes only move it elsewhere",
        )
    yield ok(f"memory, files and threads as before after {found.episodes:,} episodes")


def check_close(context: CheckContext) -> Iterator[Finding]:
    """Check what remains of a closed instance."""
    process = psutil.Process()
    with context.instance() as instance:
        instance.reset(context.config.seed_of(0))  # so that one-time loads are not counted
    before = _held(process)
    for _ in range(_CLOSED):
        with context.instance() as instance:
            instance.reset(context.config.seed_of(0))
    if _more(process, before):
        gc.collect()  # garbage is harmless
    left = _more(process, before)
    if left:
        text = ", ".join(f"{count} {what}" for what, count in left.items())
        yield note(
            f"{_CLOSED} closed instances left {text} behind",
            why="a training closes an instance only after a failure, so it adds up slowly",
            fix="release them in close()",
        )
    yield ok("closes, and leaves no file and no thread open")


@dataclass
class Growth:
    """Resources held after many episodes.

    grown: bytes between the middle and the last third of the episodes, 0 where they overlap
    left:  files and threads more than before
    """

    episodes: int = 0
    grown: int = 0
    per_episode: float = 0.0
    left: dict[str, int] = field(default_factory=dict)


def measure_growth(context: CheckContext) -> Growth:
    """Play short episodes and measure the process after each. Raises FindingError."""
    process, found, weights = psutil.Process(), Growth(), list[int]()
    rng, over = np.random.default_rng(0), context.deadline(0.5)
    with context.instance() as instance:
        before: dict[str, int] = {}
        while found.episodes < context.limits.episodes and not over():
            now = instance.reset(context.config.seed_of(found.episodes))
            mask = now.mask
            for _ in range(_STEPS):
                taken = instance.step(random_action(instance, rng, mask))
                mask = taken.mask
                if taken.terminated or taken.truncated or over():
                    break
            found.episodes += 1
            weights.append(process.memory_info().rss)
            before = before or _held(process)
        left = {what: count - before.get(what, count) for what, count in _held(process).items()}
    found.left = {what: count for what, count in left.items() if count >= max(3, found.episodes // 4)}
    found.grown, found.per_episode = grown(weights)
    return found


def grown(weights: list[int]) -> tuple[int, float]:
    """Return (bytes, bytes an episode) of growth; (0, 0) unless it is beyond doubt.

    It is beyond doubt where every measurement of the last third exceeds every one of the middle third; the
    first third may fill caches.
    """
    third = len(weights) // 3
    if third < 3:
        return 0, 0.0
    middle, last = weights[third : 2 * third], weights[-third:]
    more = weights[-1] - middle[0]
    if min(last) <= max(middle) or more < _LEAST:
        return 0, 0.0
    return more, more / (len(weights) - 1 - third)


def _held(process: psutil.Process) -> dict[str, int]:
    return {"open files": count_handles(process), "threads": process.num_threads()}


def _more(process: psutil.Process, before: dict[str, int]) -> dict[str, int]:
    """Return by how much more is held than ``before``, where it is at least one for each instance."""
    now = _held(process)
    return {what: now[what] - count for what, count in before.items() if now[what] >= count + _CLOSED}


def _rate(seconds: float) -> str:
    return f"{1 / max(seconds, 1e-9):,.0f}" if seconds < 1 else f"{1 / seconds:.2g}"


def _workers(context: CheckContext, step_ms: float) -> str:
    """Return a rule of thumb; the cost of an update matters as much and is not known here."""
    cores, setting = os.cpu_count() or 1, context.config
    if step_ms < _PAYS * WORKER_MS:
        verdict = "workers do not pay: a worker's overhead is as large as a step"
    elif cores < 2:
        verdict = "workers do not pay on a single core"
    elif setting.n_envs < 2:
        verdict = "workers pay with several environments (n_envs), one for each core at most"
    else:
        verdict = f"up to {min(cores, setting.n_envs)} workers may pay"
    return f"{step_ms:.2g} ms a step: {verdict}"
