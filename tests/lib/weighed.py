"""An environment that shows what it was given."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Weighed(gym.Env):
    """Observes [mass, gravity, wind of the model, pull, last digit of the seed]; ends after 3 steps.

    mass is an option of ``reset``; the reward is the mass, and not finite where that comes to ``breaks``, or
    a step raises there if it ``fails``
    """

    def __init__(self, breaks: float = np.inf, *, fails: bool = False) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (5,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._breaks, self._fails = breaks, fails
        self.gravity = 9.81
        self.model = type("Model", (), {"wind": np.zeros(3), "name": "weighed"})()
        self._pull = self._mass = 0.0

    def set_pull(self, value: float) -> None:
        """A setter."""
        self._pull = value

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._mass = (options or {}).get("mass", 0.0)
        self._digit, self._step = (seed or 0) % 10, 0
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        if self._fails and self._mass >= self._breaks:
            raise RuntimeError("it has broken")
        reward = np.nan if self._mass >= self._breaks else float(self._mass)
        return self._seen(), reward, False, self._step == 3, {}

    def _seen(self) -> np.ndarray:
        return np.array([self._mass, self.gravity, self.model.wind[1], self._pull, self._digit], np.float64)


gym.register("Weighed-v0", entry_point=Weighed)
