"""A place to stop at, with a reward there only; how far away it is, is a parameter."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.core.data import Double
from algorithm.env.toys.base import Toy

ACCELERATION = 0.05  # a step, at most, along each axis
RADIUS, SPEED = 0.5, 0.1  # distance and speed below which a point is parked
_UNIT = 10.0  # of a distance as it is observed


class ToyParking(Toy[NDArray[np.float32], NDArray[np.float32]]):
    """A point in a plane, at rest ``distance`` from a place; an episode ends, with 1, when it stops there.

    offset, velocity: [4], that of the place from the point and the point's own, both [2]; in units of 10, and
                      of 1 a step
    action:           [2], the acceleration in [−1, 1]; 1 is :data:`ACCELERATION`

    ``reset(options={"distance": 3})`` begins an episode at another distance. The direction is random, and
    nothing else.

    Half accelerating and half braking takes at most 2·√(distance/0.05) steps: 26 for the distance of 8.
    In the 60 steps of the id uniformly random accelerations stop there in 0.03 % of the episodes, in 1 % for
    a distance of 3 and in 11 % for a distance of 1. One that hardly changes within an episode runs through.
    """

    def __init__(self, distance: float = 8.0) -> None:
        self._distance = _checked(distance)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode, at ``options["distance"]`` if there is one. ValueError if it is not above 0.5."""
        self._now = _checked((options or {}).get("distance", self._distance))
        return super().reset(seed=seed)

    @override
    def _begin(self) -> None:
        angle = self.np_random.uniform(-np.pi, np.pi)
        self._offset: Double = self._now * np.array([np.cos(angle), np.sin(angle)])
        self._velocity: Double = np.zeros(2)

    @override
    def _act(self, action: NDArray[np.float32]) -> tuple[float, bool]:
        self._velocity = self._velocity + ACCELERATION * action
        self._offset = self._offset - self._velocity
        over = np.linalg.norm(self._offset) < RADIUS and np.linalg.norm(self._velocity) < SPEED
        return float(over), bool(over)

    @override
    def _observe(self) -> NDArray[np.float32]:
        return np.concatenate([self._offset / _UNIT, self._velocity]).astype(np.float32)


def _checked(distance: float) -> float:
    if not distance > RADIUS:
        raise ValueError(f"distance is {distance}; it must be above {RADIUS}")
    return float(distance)
