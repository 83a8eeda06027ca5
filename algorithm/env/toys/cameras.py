"""A one-step task with a known optimum, on two camera images and a vector."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.core.data import Double
from algorithm.env.toys.basic import Rounds

_REACH = 0.9  # positions and answers lie in [-0.9, 0.9]
_LEFT = (24, 32, 3)  # height, width, colours
_RIGHT = (1, 40, 40)  # channels, height, width
_PATCH = 6  # pixels, of the left camera's square
_BAR = 4  # pixels, of the right camera's bar


class ToyTwoCameras(Rounds[dict[str, Any], NDArray[np.float32]]):
    """Locate an object in two camera images, the second with the sign of a speed; one round an episode.

    left:  uint8 [24, 32, 3], a square of 6 pixels of any bright colour at any height, on black
    right: uint8 [1, 40, 40], a bright bar of 4 pixels from top to bottom, on black
    speed: float32 [3], of which the first is in ±[0.5, 1] and the others are normal noise

    The answer is the horizontal position in ``left`` and that in ``right`` times the sign of ``speed[0]``,
    both from −0.9 at the left edge to 0.9 at the right one. The reward of an action [2] is 1 − mean (a −
    answer)² / (variance of the answer): 1 for both answers, 0 on average for the best constants, −1.16 for
    uniformly random actions; 0.95 is a root mean squared error of 0.12. A policy without any one of the three
    observations loses one of the answers, for which the middle is then the best guess, and gets ½ at most.

    blind: black out this camera, or hold the speed at zero, to test a policy without it.
    """

    chance = 0.5

    def __init__(self, blind: Literal["left", "right", "speed"] | None = None) -> None:
        self.observation_space = gym.spaces.Dict(
            left=gym.spaces.Box(0, 255, _LEFT, np.uint8),
            right=gym.spaces.Box(0, 255, _RIGHT, np.uint8),
            speed=gym.spaces.Box(-np.inf, np.inf, (3,), np.float32),
        )
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        if blind is not None and blind not in self.observation_space.spaces:
            raise ValueError(f"blind is {blind!r}; it can be left, right, speed or None")
        self._blind = blind
        self._places = (_places(_LEFT[1], _PATCH), _places(_RIGHT[2], _BAR))
        self._variance = np.array([places.var() for places in self._places])

    @override
    def _observe(self) -> dict[str, Any]:
        rng = self.np_random
        columns = [int(rng.integers(len(places))) for places in self._places]
        row = int(rng.integers(_LEFT[0] - _PATCH + 1))
        left, right = np.zeros(_LEFT, np.uint8), np.zeros(_RIGHT, np.uint8)
        left[row : row + _PATCH, columns[0] : columns[0] + _PATCH] = rng.integers(128, 256, 3)
        right[:, :, columns[1] : columns[1] + _BAR] = rng.integers(128, 256)
        speed = rng.normal(size=3).astype(np.float32)
        sign = rng.choice((-1.0, 1.0))
        speed[0] = sign * rng.uniform(0.5, 1.0)
        self._answer = np.array([places[c] for places, c in zip(self._places, columns, strict=True)])
        self._answer[1] *= sign
        obs: dict[str, NDArray[Any]] = {"left": left, "right": right, "speed": speed}
        if self._blind:
            obs[self._blind].fill(0)
        return obs

    @override
    def _reward(self, action: NDArray[np.float32]) -> float:
        return 1.0 - float(np.mean((action - self._answer) ** 2 / self._variance))


def _places(width: int, size: int) -> Double:
    """Return the positions at which an object ``size`` pixels wide can start."""
    return np.linspace(-_REACH, _REACH, width - size + 1)
