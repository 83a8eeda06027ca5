"""Environments whose observations say who made them: ``tests.ds.marked:Marked-v0`` and ``Counted-v0``."""

import itertools
import os
import time
from typing import Any

import gymnasium as gym
import numpy as np
from typing_extensions import override

SCALES = (2.0**-22, 2.0**-20, 2.0**-12)
"""Of process, episode and step: all are whole numbers below 2²² or less, so that float32 has them exactly."""

FIRM = 0.5
"""Size of a person's action, which no policy draws exactly."""


class Marked(gym.Env):
    """Observes (process, episode, step), scaled, and the action that led there.

    length: steps of an episode; pause: seconds of a step
    person: share of the steps in which a person acts, by ±:data:`FIRM`
    """

    def __init__(self, length: int = 50, pause: float = 0.0, person: float = 0.0) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._length, self._pause, self._person = length, pause, person
        self._episode, self._step = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._episode, self._step = self._episode + 1, 0
        return self._seen(0.0), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        time.sleep(self._pause)
        self._step += 1
        info: dict[str, Any] = {}
        if self._person and self.np_random.random() < self._person:
            action = np.array([self.np_random.choice([-FIRM, FIRM])], np.float32)
            info = {"is_intervention": True, "teleop_action": action}
        return self._seen(action[0]), -float(action[0] ** 2), False, self._step == self._length, info

    def _seen(self, action: float) -> np.ndarray:
        return np.array((*np.multiply((os.getpid(), self._episode, self._step), SCALES), action), np.float32)


class Counted(Marked):
    """Counts episodes over all environments of its process, so that each step there has its own number."""

    _numbers = itertools.count()

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._episode = next(self._numbers)
        return self._seen(0.0), {}


gym.register("Marked-v0", Marked)
gym.register("Counted-v0", Counted)
