"""Running statistics of observations and rewards."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from algorithm.core.data import Bool, Double
from algorithm.env.observations import ROUNDING
from algorithm.env.spaces import Leaf

_IMAGE_SIDE = 8  # pixels; a smaller array is not an image (algorithm.nn.layers.images)


class RunningMoments:
    """Count, mean, variance, smallest and largest of arrays of one shape, element by element.

    Welford, Technometrics 4 (1962): numerically stable in one pass.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0
        self.mean, self._m2 = np.zeros(shape), np.zeros(shape)
        self.low, self.high = np.full(shape, np.inf), np.full(shape, -np.inf)

    def add(self, value: Double) -> None:
        """Add an array."""
        self.count += 1
        off = value - self.mean
        self.mean += off / self.count
        self._m2 += off * (value - self.mean)
        np.minimum(self.low, value, out=self.low)
        np.maximum(self.high, value, out=self.high)

    @property
    def std(self) -> Double:
        """Standard deviation of the population."""
        deviation: Double = np.sqrt(self._m2 / max(1, self.count))
        return deviation


class ObsStats:
    """Statistics of one leaf of the observation space.

    kinds:      dtypes of the returned arrays, or types of other values
    moments:    of the finite ones
    not_finite: first NaN or infinity
    outside:    steps outside the bounds; ``excess``: largest distance, and where
    """

    def __init__(self, name: str, leaf: Leaf) -> None:
        self.name, self.path, self.space = name, leaf.path, leaf.space
        shape = tuple(leaf.space.shape or ())
        box = leaf.space if isinstance(leaf.space, gym.spaces.Box) else None
        self.box = box
        self.is_image = box is not None and _is_image(shape, str(box.dtype))
        self._bounds = (box.low.astype(np.float64), box.high.astype(np.float64)) if box else None
        self.kinds: set[str] = set()
        self.moments = RunningMoments(shape)
        self.not_finite = ""
        self.outside = 0
        self.excess, self.excess_at = 0.0, ""

    def add(self, handed: Any, value: Any, place: str) -> None:  # noqa: ANN401 - a space may hold anything
        """handed: the environment's output; value: the same as the agent observes it."""
        self.kinds.add(_kind(handed))
        numbers = np.asarray(value, np.float64)
        with np.errstate(over="ignore"):
            finite = np.isfinite(numbers.astype(np.float32))  # as it is stored
        if not finite.all():
            self.not_finite = self.not_finite or f"{self._element(~finite)} is {numbers[~finite][0]}, {place}"
            return
        self.moments.add(numbers)
        if self._bounds:
            self._compare(numbers, self._bounds, place)

    def _compare(self, numbers: Double, bounds: tuple[Double, Double], place: str) -> None:
        beyond = np.maximum(bounds[0] - numbers, numbers - bounds[1])
        worst = beyond.max(initial=-np.inf)
        if worst <= ROUNDING * max(1.0, float(np.abs(numbers).max())):
            return
        self.outside += 1
        if worst > self.excess:
            self.excess = float(worst)
            at = beyond == worst
            low, high = (float(bound[at][0]) for bound in bounds)
            self.excess_at = f"{self._element(at)} = {numbers[at][0]:.6g} in [{low:g}, {high:g}], {place}"

    def _element(self, marked: Bool) -> str:
        index = np.argwhere(marked)[0].tolist() if marked.ndim else []
        return self.name + (str(index) if index else "")


def _is_image(shape: tuple[int, ...], dtype: str) -> bool:
    """Return whether shape and dtype are those of an image, as ``nn/layers/images.py`` does with torch."""
    if not (dtype == "uint8" or dtype.startswith("float")):
        return False
    wide = sum(side >= _IMAGE_SIDE for side in shape)
    return wide >= 2 and len(shape) in ((2, 3, 4) if dtype == "uint8" else (3, 4))


def _kind(handed: Any) -> str:  # noqa: ANN401 - a space may hold anything
    if isinstance(handed, np.ndarray | np.generic):
        return str(handed.dtype)
    return type(handed).__name__
