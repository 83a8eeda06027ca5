"""Are the actions such that an agent can use them?"""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np

from algorithm.env.checks.context import CheckContext, format_values
from algorithm.env.checks.determinism import first_difference, idle_policy, measure_repeatability, play
from algorithm.env.checks.episode_stats import collect_stats
from algorithm.env.checks.finding import Finding, note, ok, warning

HUGE = 1e4
"""Bound of an action beyond which a step of float32's last digit is a coarse one."""

_ENOUGH = 20  # steps before "no effect" says anything


def have_fair_bounds(context: CheckContext) -> Iterator[Finding]:
    """Bounds of continuous actions. That there are any has been seen when the environment was made."""
    found = context.cached(collect_stats).actions
    bounded = [
        (leaf.name or "action", leaf.space) for leaf in found if isinstance(leaf.space, gym.spaces.Box)
    ]
    for name, space in bounded:
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        if max(np.abs(low).max(initial=0), np.abs(high).max(initial=0)) > HUGE:
            yield warning(
                f"{name} has bounds of {format_values(low, 3)} to {format_values(high, 3)}",
                why="random actions are uniform between them, and the policy begins in the middle: what "
                "matters may be a sliver of it",
                fix="narrow the bounds to what is used: wrappers: [{RescaleAction: {min_action: …, "
                "max_action: …}}] or a wrapper of your own",
            )
        elif (low >= high).any():
            yield warning(
                f"{name} has elements whose bounds leave no choice: {format_values(low, 3)} to {format_values(high, 3)}",
                why="the policy learns an action that means nothing",
                fix="leave them out with a wrapper (base_config.wrappers)",
            )
        elif (low != -high).any():
            yield note(
                f"{name} is not symmetric: {format_values(low, 3)} to {format_values(high, 3)}",
                why="it is mapped",
            )
    yield ok("bounded" if bounded else "choices only")


def have_an_effect(context: CheckContext) -> Iterator[Finding]:
    """Random actions beside doing nothing, from the same seed."""
    played = context.cached(measure_repeatability)
    if not played.exact:
        yield ok("not told: episodes do not repeat, whatever the actions")
        return
    with context.instance() as instance:
        still = play(instance, context.config.seed_of, idle_policy, context.enough())
    at = first_difference(played.track, still)
    steps = min(len(played.track), len(still)) - 1
    if at is not None:
        yield ok(f"random actions lead elsewhere than none, from step {at} on")
        return
    if steps < _ENOUGH:
        yield ok(f"none seen, in only {steps} steps")
        return
    yield warning(
        f"random actions led to the same {steps:,} steps as doing nothing",
        why="observations, rewards and ends do not depend on what the agent does: there is nothing to learn",
        fix="look whether step uses its action; if it only matters later or in rare states, all is well",
    )
