"""An environment whose observations say who made them: ``tests.ds.marked:Marked-v0``."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium as gym
import numpy as np

SCALES = (2.0**-22, 2.0**-12, 2.0**-12)
"""Of process, episode and step: all are whole numbers below 2²² or 2¹², so that float32 has them exactly."""


class Marked(gym.Env):
    """Observes (process, episode, step), scaled. length: steps of an episode; pause: seconds of a step."""

    def __init__(self, length: int = 50, pause: float = 0.0) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._length, self._pause = length, pause
        self._episode, self._step = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._episode, self._step = self._episode + 1, 0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        time.sleep(self._pause)
        self._step += 1
        return self._seen(), -float(action[0] ** 2), False, self._step == self._length, {}

    def _seen(self) -> np.ndarray:
        return np.multiply((os.getpid(), self._episode, self._step), SCALES).astype(np.float32)


gym.register("Marked-v0", Marked)
