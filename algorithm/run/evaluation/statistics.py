"""Means with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

import numpy as np

from algorithm.core.wording import plus_minus

CONFIDENCE = 0.95

INTERVAL = "Student's 95 %"
"""Name of the confidence intervals, in terminals, pictures and reports."""


@dataclass(frozen=True)
class Interval:
    """A mean and half the width of its 95 % interval, in the unit of the samples.

    ``half_width``, the number after ±, is NaN for a single sample.
    """

    mean: float
    half_width: float

    @property
    def text(self) -> str:
        """``mean ± half width`` and the name of the interval; the mean alone for a single sample."""
        name = f" ({INTERVAL})" if math.isfinite(self.half_width) else ""
        return f"{plus_minus(self.mean, self.half_width)}{name}"


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean of independent samples with Student's 95 % confidence interval of the mean.

    mean ± t_{0.975, n−1} · s / √n, s with n − 1 in the denominator. Raises ValueError without samples.
    """
    if not len(values):
        raise ValueError("mean_interval: no samples")
    samples = np.asarray(values, np.float64)
    mean = float(samples.mean())
    if len(samples) == 1:
        return Interval(mean, math.nan)
    error = float(samples.std(ddof=1)) / math.sqrt(len(samples))
    return Interval(mean, student_quantile(len(samples) - 1) * error)


@lru_cache(maxsize=256)
def student_quantile(freedom: int) -> float:
    """Return the t with P(|T| ≤ t) = 0.95 for ``freedom`` degrees of freedom (an integer of at least 1).

    Bisection of the angle θ = atan(t/√ν) in the closed form of the distribution function
    (Abramowitz & Stegun 1964, equations 26.7.3 and 26.7.4).
    """
    if freedom < 1:
        raise ValueError(f"student_quantile: needs at least one degree of freedom, got {freedom}")
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if _student_within(middle, freedom) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(high)


def _student_within(angle: float, freedom: int) -> float:
    """Return P(|T| ≤ √ν·tan(angle))."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(1, (freedom - odd) // 2 + 1):
        total += term
        term *= cosine**2 * ((2 * k) / (2 * k + 1) if odd else (2 * k - 1) / (2 * k))
    return (angle + sine * total) * 2 / math.pi if odd else sine * total


def mean_infos(infos: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each number in the infos of episodes, over the episodes that have it."""
    by_key: dict[str, list[float]] = {}
    for numbers in infos:
        for key, value in numbers.items():
            by_key.setdefault(key, []).append(value)
    return {key: fmean(values) for key, values in by_key.items()}
