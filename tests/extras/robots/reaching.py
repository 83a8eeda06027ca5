"""A task whose success an observation shows: ``tests.extras.robots.reaching:Reaching-v0``."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from tests.lib.toys import Toy


class Reaching(Toy):
    """Walks by its action; the reward is 1 beyond 1.5, which ends the episode, of 30 steps at most.

    pays: rewards success; otherwise it goes unnoticed
    """

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    at = 0.0

    def __init__(self, pays: bool = True) -> None:
        super().__init__()
        self._pays = pays

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        self.at = 0.0
        return super().reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        self.at += float(action[0])
        success = self._pays and self.at > 1.5
        return self._seen(), float(success), success, self._step == 30, {}

    def _seen(self) -> np.ndarray:
        return np.array([self.at, self._step / 30], np.float32)


gym.register("Reaching-v0", entry_point=Reaching)
gym.register("Unpaid-v0", entry_point=Reaching, kwargs={"pays": False})
