"""Checks of an environment as a program: building, stepping, wrappers."""

from __future__ import annotations

from collections.abc import Iterator

from algorithm.core.wording import counted
from algorithm.extras.check.context import CheckContext
from algorithm.extras.check.episode_stats import collect_stats
from algorithm.extras.check.finding import Finding, ok, warning


def check_build(context: CheckContext) -> Iterator[Finding]:
    """Check that the environment can be built and wrapped, and has supported spaces."""
    with context.instance() as instance:
        yield ok(instance.env.name)
        yield ok(f"action: {instance.spec.action.description}")


def check_random_steps(context: CheckContext) -> Iterator[Finding]:
    """Check that episodes of random actions can be played."""
    stats = context.cached(collect_stats)
    yield ok(f"{counted(stats.steps, 'step')} with random actions, {counted(len(stats.episodes), 'episode')}")


def check_wrappers(context: CheckContext) -> Iterator[Finding]:
    """Report wrappers that keep running statistics, which no checkpoint holds."""
    for remark in context.cached(collect_stats).wrappers:
        yield warning(**remark._asdict())
