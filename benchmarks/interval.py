"""How far apart two sets of runs are, with an interval that says how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000


@dataclass(frozen=True)
class Difference:
    """Mean of one side less mean of the other, with its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """``higher``, ``lower``, or ``not told apart`` where the interval contains 0."""
        if self.low <= 0 <= self.high:
            return "not told apart"
        return "higher" if self.low > 0 else "lower"


def bootstrap_difference(
    ours: Sequence[float], theirs: Sequence[float], *, resamples: int = RESAMPLES, seed: int = 0
) -> Difference:
    """95 % percentile bootstrap of mean(ours) − mean(theirs), each side resampled by itself (Efron 1979).

    ours, theirs: one value a seed. The same arguments give the same interval. With few seeds it is narrower
    than it should be: three values have ten different resamples. Raises ValueError with fewer than two values
    on a side, from which no interval can be drawn.
    """
    if min(len(ours), len(theirs)) < 2:
        raise ValueError(f"an interval needs two runs a side, there are {len(ours)} and {len(theirs)}")
    rng = np.random.default_rng(seed)
    means = [_resampled_means(np.asarray(side, np.float64), resamples, rng) for side in (ours, theirs)]
    low, high = np.percentile(means[0] - means[1], [2.5, 97.5])
    return Difference(float(np.mean(ours) - np.mean(theirs)), float(low), float(high))


def _resampled_means(values: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    means: np.ndarray = values[rng.integers(len(values), size=(resamples, len(values)))].mean(axis=1)
    return means
