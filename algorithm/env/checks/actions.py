"""Checks of actions."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np

from algorithm.core.data import Bool, Float
from algorithm.core.spec import ActionSpec
from algorithm.env.checks.context import CheckContext, format_values, play
from algorithm.env.checks.determinism import digests, first_difference, measure_repeatability
from algorithm.env.checks.episode_stats import collect_stats
from algorithm.env.checks.finding import Finding, note, ok, warning

HUGE = 1e4
"""Bound of an action beyond which a float32 resolves it coarsely."""

_ENOUGH = 20  # steps before "no effect" is reported


def check_bounds(context: CheckContext) -> Iterator[Finding]:
    """Check the size of bounds. Infinite ones are refused when the environment is built."""
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
                f"{name} has elements whose bounds leave no choice: "
                f"{format_values(low, 3)} to {format_values(high, 3)}",
                why="the policy learns an action that means nothing",
                fix="remove them with a wrapper (base_config.wrappers)",
            )
        elif (low != -high).any():
            yield note(
                f"{name} is not symmetric: {format_values(low, 3)} to {format_values(high, 3)}",
                why="it is mapped",
            )
    yield ok("bounded" if bounded else "choices only")


def check_effect(context: CheckContext) -> Iterator[Finding]:
    """Compare random actions with idle ones, from the same seed."""
    played = context.cached(measure_repeatability)
    if played.places:
        yield ok("not checked: episodes do not repeat, whatever the actions")
        return
    with context.instance() as instance:
        still = digests(context.limited(play(instance, context.config, idle_policy)))
    at = first_difference(played.first, still)
    steps = min(len(played.first), len(still)) - 1
    if at is not None:
        yield ok(f"random actions make a difference, from step {at} on")
        return
    if steps < _ENOUGH:
        yield ok(f"none seen, in only {steps} steps")
        return
    yield warning(
        f"random actions led to the same {steps:,} steps as doing nothing",
        why="observations, rewards and ends do not depend on actions: there is nothing to learn",
        fix="check whether step uses its action; if it matters later or in rare states only, all is well",
    )


def idle_policy(spec: ActionSpec, rng: np.random.Generator, mask: Bool) -> Float:
    """Take the middle of every continuous action, and the first allowed choice of each branch."""
    action = np.zeros(spec.size, np.float32)
    for where in spec.branch_slices:
        action[where.start + int(mask[0, where].argmax())] = 1.0
    return action
