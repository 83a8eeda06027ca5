"""Checks of speed, and of memory, files and threads that remain."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil

from algorithm.core.system.processes import count_handles
from algorithm.env.checks.context import CheckContext, play
from algorithm.env.checks.episode_stats import collect_stats
from algorithm.env.checks.finding import Finding, ok, warning

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
    yield ok(_workers(context, 1000 * per_step))


def check_growth(context: CheckContext) -> Iterator[Finding]:
    """Play many short episodes, and measure memory, open files and threads after each."""
    process, weights, before = psutil.Process(), list[int](), dict[str, int]()
    over, limits = context.deadline(0.5), context.limits
    with context.instance() as instance:
        for now in play(instance, context.config, limit=_STEPS):
            if not (now.over or now.number == _STEPS or over()):
                continue
            weights.append(process.memory_info().rss)
            before = before or _held(process)
            if len(weights) >= limits.episodes or over():
                break
        after = _held(process)
    for what, count in after.items():
        if count - before[what] >= max(3, len(weights) // 4):
            yield warning(
                f"{count - before[what]:,} {what} more after {len(weights):,} episodes",
                why="a long training runs into the system's limit",
                fix=f"close what an episode opens before reset opens it again ({what})",
            )
    more, per_episode = grown(weights)
    if more:
        yield warning(
            f"memory grows: {per_episode / 2**10:,.0f} KB an episode",
            where=f"{more / 2**20:,.1f} MB in {len(weights):,} episodes of at most {_STEPS} steps",
            why=f"{per_episode * 10_000 / 2**30:,.1f} GB in 10,000 episodes",
            fix="check what reset or step keeps appending to; worker processes only move it elsewhere",
        )
    yield ok(f"memory, files and threads as before after {len(weights):,} episodes")


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
