"""Statistics over runs of several tasks: interquartile means, intervals, probabilities, profiles.

They are from Agarwal et al. 2021 (arXiv 2108.13264). A *stratum* holds the runs of one task, one a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from algorithm.core.data import Double

REPEATS = 2000
"""Resamples of a bootstrap."""

_ENDS = (2.5, 97.5)  # percentiles of a 95 % interval
_POINTS = 61  # of a common grid
_NEAR = 0.05  # distance from a step, as a share of it, within which an evaluation counts


@dataclass(frozen=True)
class Curve:
    """Evaluations of one run, [P] each: environment step, mean return or score, CPU seconds so far.

    CPU seconds that are not known are NaN.
    """

    step: Double
    score: Double
    core: Double


Runs = Mapping[str, Sequence[Curve]]
"""Task -> the runs of one side, one a seed."""


@dataclass(frozen=True)
class Estimate:
    """A statistic and the ends of its 95 % interval, [P] each."""

    value: Double
    low: Double
    high: Double


def interquartile_mean(values: Double) -> Double:
    """Return the mean of the middle half along the last axis; ⌊n/4⌋ are cut off at each end."""
    cut = values.shape[-1] // 4
    mean: Double = np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut].mean(axis=-1)
    return mean


def estimate(
    strata: Sequence[Double], statistic: Callable[[Double], Double] = interquartile_mean
) -> Estimate:
    """Return a statistic over all runs, with the percentile interval of the stratified bootstrap.

    strata:    values of the runs of each task, [R_t, P]; runs are resampled within each task
    statistic: [P, R] → [P]
    The same values give the same interval.
    """
    values = np.concatenate(list(strata))
    generator, first, drawn = np.random.default_rng(0), 0, []
    for stratum in strata:
        drawn.append(first + generator.integers(len(stratum), size=(REPEATS, len(stratum))))
        first += len(stratum)
    resampled = np.stack([statistic(values[rows].T) for rows in np.concatenate(drawn, axis=1)])
    low, high = np.percentile(resampled, _ENDS, axis=0)
    return Estimate(statistic(values.T), low, high)


def improvement(ours: Sequence[Double], theirs: Sequence[Double]) -> Estimate:
    """Return the probability that a run of ours beats a run of theirs on a task drawn at random, [1].

    ours, theirs: scores of the runs of the same tasks, [R_t] and [S_t]
    Mann and Whitney's U / (R_t · S_t), ties counting one half, averaged over tasks; both sides are resampled.
    """
    wins = [
        (mine[:, None] > other) + 0.5 * (mine[:, None] == other)
        for mine, other in zip(ours, theirs, strict=True)
    ]
    generator = np.random.default_rng(0)
    resampled = np.zeros(REPEATS)
    for won in wins:
        rows, columns = (generator.integers(n, size=(REPEATS, n)) for n in won.shape)
        resampled += won[rows[:, :, None], columns[:, None, :]].mean(axis=(1, 2)) / len(wins)
    low, high = np.percentile(resampled, _ENDS)
    point = np.mean([won.mean() for won in wins])
    return Estimate(*(np.atleast_1d(x) for x in (point, low, high)))


def profile(strata: Sequence[Double], levels: Double) -> Estimate:
    """Return the share of runs whose score [R_t] is above each level, [P]."""
    above = [(scores[:, None] > levels).astype(np.float64) for scores in strata]
    return estimate(above, lambda values: values.mean(axis=-1))


def course(runs: Runs, axis: str) -> tuple[Double, Estimate] | None:
    """Return a grid over ``step`` or ``core`` [P] and the interquartile mean along it.

    A task ends where its first run ends, and keeps its values there while other tasks continue. None if a
    run has no values on that axis.
    """
    pairs = [[(getattr(curve, axis), curve.score) for curve in of] for of in runs.values() if of]
    every = [x for of in pairs for x, _ in of]
    if not every or not all(len(x) and np.isfinite(x).all() for x in every):
        return None
    ends = [min(float(x[-1]) for x, _ in of) for of in pairs]
    # a single point if each run was evaluated once
    grid = np.unique(np.linspace(min(max(ends), max(float(x[0]) for x in every)), max(ends), _POINTS))
    strata = [
        np.stack([np.interp(np.minimum(grid, end), x, y) for x, y in of])
        for of, end in zip(pairs, ends, strict=True)
    ]
    return grid, estimate(strata)


def measured(runs: Sequence[Curve], step: float) -> Double:
    """Return the scores of runs [R] in their evaluations at a step; NaN if none is within 5 % of it.

    Runs that step several environments at once evaluate a few steps later.
    """
    nearest = [int(np.abs(curve.step - step).argmin()) for curve in runs]
    return np.array(
        [
            curve.score[at] if abs(curve.step[at] - step) <= _NEAR * step else np.nan
            for curve, at in zip(runs, nearest, strict=True)
        ]
    )


def last_common(runs: Sequence[Curve]) -> float:
    """Return the last step at which every run was evaluated, else the end of the shortest run."""
    steps = np.unique(np.concatenate([curve.step for curve in runs]))[::-1]
    common = (float(step) for step in steps if np.isfinite(measured(runs, step)).all())
    return next(common, min(float(curve.step[-1]) for curve in runs))


def at_share(runs: Sequence[Curve], end: float, share: float = 1.0) -> Double:
    """Return the scores of runs [R] at a share of ``end`` steps, linear between evaluations, NaN before."""
    return np.array([np.interp(share * end, curve.step, curve.score, left=np.nan) for curve in runs])
