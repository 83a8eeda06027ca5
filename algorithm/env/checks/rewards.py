"""Checks of rewards."""

from __future__ import annotations

import math
from collections.abc import Iterator

from algorithm.env.checks.context import CheckContext
from algorithm.env.checks.episode_stats import collect_stats
from algorithm.env.checks.finding import Finding, error, ok, warning

LARGE, SMALL = 1e3, 1e-4
"""Rewards of a step above and below which the default temperatures and step sizes do not suit."""

_ENOUGH = 50  # rewards before "always the same" is reported


def check_finite(context: CheckContext) -> Iterator[Finding]:
    """Check for NaN and infinity."""
    found = context.cached(collect_stats)
    if found.not_finite:
        yield error(
            "a reward is not finite",
            where=found.not_finite,
            why="a training ends with exit code 5 at the first one",
            fix="find what divides by zero or overflows; a wrapper may clip (base_config.wrappers)",
        )
    yield ok("finite numbers")


def check_change(context: CheckContext) -> Iterator[Finding]:
    """Check for a constant reward, which has no information unless episodes differ in length."""
    found = context.cached(collect_stats)
    rewards = found.rewards
    if rewards.count < _ENOUGH:
        yield ok("too few rewards")
        return
    value = float(rewards.low)
    if not found.nonzero:
        yield warning(
            f"all {rewards.count:,} rewards were 0",
            where=f"{len(found.episodes):,} episodes of random actions",
            why="without a single reward there is nothing to learn from: it must be found by chance",
            fix="check whether random actions can reach one; reward steps on the way, or start "
            "some episodes nearer to it",
        )
    elif rewards.low == rewards.high and len({episode.length for episode in found.episodes}) < 2:
        yield warning(
            f"every reward was {value:g}, and no episode was longer than another",
            where=f"{rewards.count:,} steps of random actions",
            why="all policies have the same return",
            fix="check whether the reward depends on the actions",
        )
    elif rewards.low == rewards.high:
        yield ok(f"always {value:g}: what counts is how long an episode lasts")
        return
    share = found.nonzero / rewards.count
    rare = f", {share:.1%} of them not 0" if share < 0.1 else ""
    yield ok(f"from {value:.4g} to {float(rewards.high):.4g}, mean {float(rewards.mean):.4g}{rare}")


def check_scale(context: CheckContext) -> Iterator[Finding]:
    """Check the size of rewards: critics learn sums of them with a fixed step size."""
    rewards, scale = context.cached(collect_stats).rewards, context.config.reward_scale
    largest = max(abs(float(rewards.low)), abs(float(rewards.high))) if rewards.count else 1.0 / scale
    learned = largest * scale
    scaled = "" if scale == 1 else f" times base_config.reward_scale ({scale:g})"
    if context.config.rewards_scaled:
        yield ok(f"at most {largest:.4g} a step, divided by the returns' spread (sac_config.reward_scaling)")
        return
    if learned > LARGE:
        yield warning(
            f"rewards of up to {largest:.4g}{scaled} a step",
            why="values become too large for the step size; losses may explode, the entropy bonus vanishes",
            fix=_to_about_one(largest),
        )
    elif 0 < learned < SMALL:
        yield warning(
            f"no reward of a step was beyond {largest:.2g}{scaled}",
            why="the entropy bonus outweighs them: the policy stays random for long",
            fix=_to_about_one(largest),
        )
    yield ok(f"at most {largest:.4g}{scaled} a step")


def _to_about_one(largest: float) -> str:
    factor = 10.0 ** -round(math.log10(largest))
    return f"set base_config.reward_scale: {factor:g}; returns are still reported unscaled"
