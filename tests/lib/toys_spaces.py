"""Environments of several kinds of spaces: ``tests.lib.toys:Nested-v0``, ``Grants-v0`` and ``Film-v0``."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np

from tests.lib.toys import Toy


class Nested(gym.Env):
    """Three observations that tell key and step; an action of two parts.

    The key is seed mod 1000, and without a seed one more than the last. An episode has 2 + key mod 5 steps;
    it ends terminated for an even key, truncated for an odd one. Each entry of the camera is (key + 3 step +
    its number) mod 256; the speed is (key, sum of all the forces so far), the gear the number of the last
    choice. The reward is the step plus the first force.

    reuse: hand out the same arrays every time, changed in place
    """

    _key, _step = -1, 0

    def __init__(self, reuse: bool = True) -> None:
        self._reuse = reuse
        self.observation_space = gym.spaces.Dict(
            camera=gym.spaces.Box(0, 255, (8, 8, 3), np.uint8),
            speed=gym.spaces.Box(-np.inf, np.inf, (2,), np.float64),
            gear=gym.spaces.Discrete(3, start=-1),
        )
        self.action_space = gym.spaces.Tuple(
            [gym.spaces.Discrete(3), gym.spaces.Box(-1.0, 3.0, (2,), np.float32)]
        )
        self._camera, self._speed, self._gear = np.zeros((8, 8, 3), np.uint8), np.zeros(2), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._key, self._step = (self._key + 1 if seed is None else seed) % 1000, 0
        self._speed[:], self._gear = (self._key, 0.0), 0
        return self._seen(), {"spare": 0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        reward = float(self._step + action[1][0])
        self._gear = int(action[0]) - 1
        self._speed[1] += float(action[1].sum())
        self._step += 1
        ended, odd = self._step == 2 + self._key % 5, bool(self._key % 2)
        return self._seen(), reward, ended and not odd, ended and odd, {"spare": self._step}

    def _seen(self) -> Any:
        self._camera[:] = (np.arange(192).reshape(8, 8, 3) + self._key + 3 * self._step) % 256
        seen = {"camera": self._camera, "speed": self._speed, "gear": self._gear}
        return seen if self._reuse else deepcopy(seen)


class Grants(Toy):
    """Hands out the masks of a list, one with each observation; truncated with the last one."""

    observation_space = gym.spaces.Box(0, 9, (1,))
    action_space = gym.spaces.Dict(move=gym.spaces.Discrete(3), jump=gym.spaces.Discrete(2))

    def __init__(self, masks: list[Any]) -> None:
        self._masks = masks

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        return self._seen(), 0.0, False, self._step == len(self._masks) - 1, self._info()

    def _info(self) -> dict[str, Any]:
        mask = self._masks[self._step]
        return {} if mask is None else {"action_mask": np.array(mask)}


class Film(Toy):
    """Frames of one dtype; frame k is full of (seed + k) mod 256."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, dtype: str = "uint8", nested: bool = False) -> None:
        frame = gym.spaces.Box(0, 255, (2, 2), np.dtype(dtype))
        self._nested, self._dtype = nested, frame.dtype
        self.observation_space = gym.spaces.Dict(frame=frame) if nested else frame

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        return self._seen(), float(action), False, False, {}

    def _seen(self) -> Any:
        frame = np.full((2, 2), (self._seed + self._step) % 256, self._dtype)
        return {"frame": frame} if self._nested else frame
