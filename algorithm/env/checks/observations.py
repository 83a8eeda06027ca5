"""Checks of observations against their space, and for use in networks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from algorithm.env.checks.context import CheckContext, format_values
from algorithm.env.checks.episode_stats import ObsStats, collect_stats
from algorithm.env.checks.finding import Finding, error, note, ok, warning

LARGE = 100.0
"""Mean or deviation beyond which networks learn badly without normalisation."""

_ENOUGH = 20  # observations before "never changes" is reported


def check_shapes(context: CheckContext) -> Iterator[Finding]:
    """Report shapes and dtypes; what does not fit them has ended the random steps."""
    parts = [
        f"{name} {'×'.join(map(str, shape)) or 'scalar'} {dtype}"
        for name, shape, dtype in context.cached(collect_stats).instance.spec.obs.items()
    ]
    yield ok(", ".join(parts[:6]) + (f" and {len(parts) - 6} more" if len(parts) > 6 else ""))


def check_finite(context: CheckContext) -> Iterator[Finding]:
    """Check for NaN and infinity."""
    for record in context.cached(collect_stats).records.values():
        if record.not_finite:
            yield error(
                f"{record.name} is not finite",
                where=record.not_finite,
                why="a training ends with exit code 5 at the first one",
                fix="find what divides by zero or overflows; a wrapper may clip (base_config.wrappers)",
            )
    yield ok("no NaN, no infinity")


def check_bounds(context: CheckContext) -> Iterator[Finding]:
    """Check the announced bounds."""
    found = context.cached(collect_stats)
    for remark, place in found.outside:
        yield warning(**remark._asdict(), where=place)
    boxes = [record for record in found.records.values() if record.is_box and record.moments.count]
    yield ok("; ".join(_range(record) for record in boxes[:3]) or "choices only")


def check_change(context: CheckContext) -> Iterator[Finding]:
    """Check for elements that never change."""
    records = [
        record for record in context.cached(collect_stats).records.values() if record.moments.count >= _ENOUGH
    ]
    for record in records:
        fixed = record.moments.low == record.moments.high
        if fixed.all():
            yield warning(
                f"{record.name} never changed: {format_values(record.moments.low)}",
                where=f"in {record.moments.count:,} observations",
                why="an agent learns nothing from it",
                fix="check whether it is ever written to; remove it with a wrapper (base_config.wrappers)",
            )
        elif fixed.any() and not record.is_image:  # image borders are ignored
            indices = [tuple(index) if len(index) > 1 else index[0] for index in np.argwhere(fixed).tolist()]
            listed = ", ".join(map(str, indices[:6])) + (", …" if len(indices) > 6 else "")
            yield note(
                f"{len(indices)} of {fixed.size} elements of {record.name} never changed: {listed}",
                why="with random actions; they may change for a better policy",
            )
    yield ok("too few observations" if not records else "every observation changes")


def check_scale(context: CheckContext) -> Iterator[Finding]:
    """Check for numbers far from 1."""
    seen = [record for record in context.cached(collect_stats).records.values() if record.moments.count]
    vectors = [record for record in seen if record.is_box and not record.is_image]
    for record in vectors:
        mean, std = np.abs(record.moments.mean), record.moments.std
        large = (mean > LARGE) | (std > LARGE)
        if large.any() and not context.config.normalised:
            at = np.unravel_index(int(np.argmax(np.maximum(mean, std))), mean.shape)
            name = record.name + (str([int(i) for i in at]) if at else "")
            yield warning(
                f"{name} has mean {record.moments.mean[at]:.4g} and deviation {std[at]:.4g}",
                where=f"{int(large.sum())} of {large.size} elements of {record.name} are beyond {LARGE:g}",
                why="networks learn slowly, or not at all, from numbers far from 1",
                fix="set sac_config.use_normalization: true",
            )
    if not vectors:
        yield ok("no vector of numbers")
        return
    yield ok("normalised by sac_config.use_normalization" if context.config.normalised else "around 1")


def check_images(context: CheckContext) -> Iterator[Finding]:
    """Check for float images, which take four times the memory."""
    images = [record for record in context.cached(collect_stats).records.values() if record.is_image]
    for record in images:
        if str(record.space.dtype) != "uint8":
            yield warning(
                f"the image {record.name} is {record.space.dtype}",
                where=f"{record.space}",
                why="the replay holds it as float32, four times as large as bytes",
                fix="return uint8 from 0 to 255; the networks scale it to [0, 1] themselves",
            )
    yield ok(f"{len(images)} in uint8" if images else "none")


def _range(record: ObsStats) -> str:
    low, high = float(record.moments.low.min()), float(record.moments.high.max())
    return f"{record.name} from {low:.4g} to {high:.4g}"
