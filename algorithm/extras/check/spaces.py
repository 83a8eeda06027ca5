"""Checks of observations and actions: against their spaces, and for use in networks."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np

from algorithm.extras.check.context import CheckContext
from algorithm.extras.check.episode_stats import ObsStats, collect_stats
from algorithm.extras.check.finding import Finding, error, format_values, note, ok, warning

LARGE = 100.0
"""Mean or deviation of an observation beyond which networks learn badly without normalisation."""

HUGE = 1e4
"""Bound of an action beyond which a float32 resolves it coarsely."""

_ENOUGH = 20  # observations that a conclusion needs


def check_shapes(context: CheckContext) -> Iterator[Finding]:
    """Report shapes and dtypes. A value that does not fit them has ended the random steps."""
    texts = [
        f"{name} {'×'.join(map(str, shape)) or 'scalar'} {dtype}"
        for name, shape, dtype in context.cached(collect_stats).instance.spec.obs.items()
    ]
    yield ok(", ".join(texts[:6]) + (f" and {len(texts) - 6} more" if len(texts) > 6 else ""))


def check_obs_finite(context: CheckContext) -> Iterator[Finding]:
    """Check that no observation is NaN or infinite."""
    for record in context.cached(collect_stats).records.values():
        if record.not_finite:
            yield error(
                f"{record.name} is not finite",
                where=record.not_finite,
                why="training stops with exit code 5 at the first one",
                fix="find what divides by zero or overflows; a wrapper can clip (base_config.wrappers)",
            )


def check_obs_bounds(context: CheckContext) -> Iterator[Finding]:
    """Check that observations are within the bounds of their space."""
    stats = context.cached(collect_stats)
    for record in stats.records.values():
        if why := record.outside:
            yield warning(
                f"observation {record.name!r} of {stats.instance.env.name} is outside its bounds",
                why=why,
                fix="it is used as it is; correct the bounds of observation_space",
            )
    boxes = [record for record in stats.records.values() if record.is_box and record.moments.count]
    yield ok("; ".join(_range(record) for record in boxes[:3]) or "choices only")


def check_change(context: CheckContext) -> Iterator[Finding]:
    """Check for elements of observations that never change."""
    records = [
        record for record in context.cached(collect_stats).records.values() if record.moments.count >= _ENOUGH
    ]
    for record in records:
        fixed = record.moments.low == record.moments.high
        if fixed.all():
            yield warning(
                f"{record.name} never changed: {format_values(record.moments.low)}",
                where=f"in {record.moments.count:,} observations",
                why="it carries no information",
                fix="check whether it is ever set, or remove it with a wrapper (base_config.wrappers)",
            )
        elif fixed.any() and not record.is_image:  # image borders are ignored
            indices = [tuple(index) if len(index) > 1 else index[0] for index in np.argwhere(fixed).tolist()]
            listed = ", ".join(map(str, indices[:6])) + (", …" if len(indices) > 6 else "")
            yield note(
                f"{len(indices)} of {fixed.size} elements of {record.name} never changed: {listed}",
                why="with random actions; they may change with a better policy",
            )


def check_obs_scale(context: CheckContext) -> Iterator[Finding]:
    """Check for observations far from 1."""
    seen = [record for record in context.cached(collect_stats).records.values() if record.moments.count]
    vectors = [record for record in seen if record.is_box and not record.is_image]
    for record in vectors:
        mean, std = np.abs(record.moments.mean), record.moments.std
        large = (mean > LARGE) | (std > LARGE)
        if large.any() and not context.learning.use_normalization:
            at = np.unravel_index(int(np.argmax(np.maximum(mean, std))), mean.shape)
            name = record.name + (str([int(i) for i in at]) if at else "")
            yield warning(
                f"{name} has mean {record.moments.mean[at]:.4g} and deviation {std[at]:.4g}",
                where=f"{int(large.sum())} of {large.size} elements of {record.name} are beyond {LARGE:g}",
                why="networks learn slowly, or not at all, from numbers far from 1",
                fix="set sac_config.use_normalization: true",
            )
    normalised = context.learning.use_normalization
    yield ok("normalised by sac_config.use_normalization" if normalised else "around 1")


def _range(record: ObsStats) -> str:
    """Return name and range of an observation as text."""
    low, high = float(record.moments.low.min()), float(record.moments.high.max())
    return f"{record.name} from {low:.4g} to {high:.4g}"


def check_action_bounds(context: CheckContext) -> Iterator[Finding]:
    """Check that the bounds of actions are of a reasonable size. Infinite ones are refused at building."""
    for leaf in context.cached(collect_stats).actions:
        name, space = leaf.name or "action", leaf.space
        if not isinstance(space, gym.spaces.Box):
            continue
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        if max(np.abs(low).max(initial=0), np.abs(high).max(initial=0)) > HUGE:
            yield warning(
                f"{name} has bounds of {format_values(low, 3)} to {format_values(high, 3)}",
                why="random actions are uniform between them, and the policy starts in the middle: the "
                "useful range may be tiny",
                fix="narrow the bounds to the useful range: wrappers: [{RescaleAction: {min_action: …, "
                "max_action: …}}] or your own wrapper",
            )
