"""Checks of rewards, and of how and when episodes end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from algorithm.extras.check.context import CheckContext
from algorithm.extras.check.episode_stats import EpisodeStats, collect_stats
from algorithm.extras.check.finding import Finding, error, note, ok, warning

LARGE, SMALL = 1e3, 1e-4
"""Rewards of a step above and below which the default temperatures and step sizes do not suit."""

_ENOUGH = 50  # rewards before "always the same" is reported

_SAME = 3  # episodes needed before "all of the same length" is reported
_LONG = 200  # steps needed before "never ends" is reported
_GAME = 10  # steps: shorter episodes of one length may be a game with a fixed number of rounds


def check_rewards_finite(context: CheckContext) -> Iterator[Finding]:
    """Check that no reward is NaN or infinite."""
    stats = context.cached(collect_stats)
    if stats.not_finite:
        yield error(
            "a reward is not finite",
            where=stats.not_finite,
            why="training stops with exit code 5 at the first one",
            fix="find what divides by zero or overflows; a wrapper can clip (base_config.wrappers)",
        )


def check_rewards_differ(context: CheckContext) -> Iterator[Finding]:
    """Check that rewards differ: a constant one has no information unless episodes differ in length."""
    stats = context.cached(collect_stats)
    rewards = stats.rewards
    value = float(rewards.low)
    if rewards.count < _ENOUGH:
        yield ok("too few rewards")
    elif not stats.nonzero:
        yield warning(
            f"all {rewards.count:,} rewards were 0",
            where=f"{len(stats.episodes):,} episodes of random actions",
            why="without any reward there is nothing to learn from: one must be found by chance",
            fix="check whether random actions can reach one; reward progress, or start some episodes "
            "closer to it",
        )
    elif rewards.low == rewards.high and len({episode.length for episode in stats.episodes}) < 2:
        yield warning(
            f"every reward was {value:g}, and no episode was longer than another",
            where=f"{rewards.count:,} steps of random actions",
            why="all policies have the same return",
            fix="check whether the reward depends on the actions",
        )
    elif rewards.low == rewards.high:
        yield ok(f"always {value:g}: only the length of an episode matters")
    else:
        share = stats.nonzero / rewards.count
        rare = f", {share:.1%} of them not 0" if share < 0.1 else ""
        yield ok(f"from {value:.4g} to {float(rewards.high):.4g}, mean {float(rewards.mean):.4g}{rare}")


def check_reward_scale(context: CheckContext) -> Iterator[Finding]:
    """Check the size of rewards: critics learn sums of them with a fixed step size."""
    rewards, scale = context.cached(collect_stats).rewards, context.config.reward_scale
    largest = max(abs(float(rewards.low)), abs(float(rewards.high))) if rewards.count else 1.0 / scale
    learned = largest * scale
    scaled = "" if scale == 1 else f" times base_config.reward_scale ({scale:g})"
    if context.learning.reward_scaling:
        how = {True: "divided by the returns' spread", "auto": "in a unit by the returns of random actions"}
        scaling = how[context.learning.reward_scaling]
        yield ok(f"at most {largest:.4g} per step, {scaling} (sac_config.reward_scaling)")
    elif learned > LARGE:
        yield warning(
            f"rewards of up to {largest:.4g}{scaled} per step",
            why="values become too large for the step size; losses may explode, the entropy bonus vanishes",
            fix=_suggest_scale(largest),
        )
    elif 0 < learned < SMALL:
        yield warning(
            f"no reward per step was above {largest:.2g}{scaled}",
            why="the entropy bonus outweighs them: the policy stays random for a long time",
            fix=_suggest_scale(largest),
        )
    else:
        yield ok(f"at most {largest:.4g}{scaled} per step")


def _suggest_scale(largest: float) -> str:
    """Return advice on a ``reward_scale`` that makes the largest reward about 1."""
    factor = 10.0 ** -round(math.log10(largest))
    return f"set base_config.reward_scale: {factor:g}; returns are still reported unscaled"


def check_ends(context: CheckContext) -> Iterator[Finding]:
    """Check that episodes end, by themselves or at a time limit."""
    stats = context.cached(collect_stats)
    number = len(stats.episodes)
    if not number:
        yield from _without_end(context, stats)
        return
    terminated = sum(episode.terminated for episode in stats.episodes)
    truncated = sum(episode.truncated for episode in stats.episodes)
    if not terminated and stats.instance.env.time_limit is None and not truncated:
        yield ok(f"all {number:,} cut off by max_step_each_iter at {context.config.length_limit:,}")
        return
    if not terminated:
        yield note(
            f"the task itself never ended: all {number:,} episodes were truncated",
            why="correct for a task without an end; values continue beyond the time limit",
        )
    yield ok(f"{terminated:,} terminated, {truncated:,} truncated")


def check_time_limits(context: CheckContext) -> Iterator[Finding]:
    """Check for a time limit reported as termination (Pardo et al., arXiv 1712.00378)."""
    episodes = context.cached(collect_stats).episodes
    both = [episode for episode in episodes if episode.terminated and episode.truncated]
    terminated = [episode for episode in episodes if episode.terminated]
    lengths = {episode.length for episode in terminated}
    if len(both) > 1 and 2 * len(both) > len(terminated):
        often = Counter(episode.length for episode in both).most_common(3)
        yield warning(
            f"{len(both):,} of {len(episodes):,} episodes were terminated and truncated in the same step",
            where=f"after {', '.join(f'{length:,}' for length, _ in often)} steps",
            why=(
                "terminated takes precedence: the agent learns that nothing follows, which is wrong at a "
                "time limit"
            ),
            fix="set terminated only where the task has ended; let the TimeLimit wrapper truncate",
        )
    elif (
        len(terminated) >= _SAME
        and len(terminated) == len(episodes)
        and len(lengths) == 1
        and max(lengths) >= _GAME
    ):
        yield warning(
            f"all {len(terminated):,} episodes were terminated after exactly {max(lengths):,} steps",
            why="this looks like a time limit. Terminated means that no reward can follow; at a time limit "
            "this makes values near the end wrong",
            fix="return truncated=True and terminated=False at a time limit; if the task itself ends then, "
            "ignore this",
        )
    yield ok("terminated and truncated differ" if terminated else "nothing was terminated")


def _without_end(context: CheckContext, stats: EpisodeStats) -> Iterator[Finding]:
    """Yield the finding about steps in which no episode ended."""
    limits = [
        limit
        for limit in (stats.instance.env.time_limit, context.config.length_limit)
        if limit is not None and limit > 0
    ]
    if limits:
        yield ok(f"none in {stats.steps:,} steps; the time limit is {min(limits):,}")
    elif stats.steps < _LONG:
        yield ok(f"none in {stats.steps:,} steps, more were not possible in time")
    else:
        yield warning(
            f"no episode ended within {stats.steps:,} steps, and no time limit is known",
            why="returns are reported only when episodes end, and evaluations cut them off at "
            "eval_config.max_step",
            fix="set base_config.max_step_each_iter, or wrappers: [{TimeLimit: {max_episode_steps: 1000}}]",
        )
