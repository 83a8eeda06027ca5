"""Environments that are handed in as objects: one of ten lines, and some that cannot be had twice."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Walk(gym.Env):
    """Come to the origin of a line; the infos say how well that goes, and the reward once more."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - as gymnasium has it

    def __init__(self, size: float = 1.0, render_mode: str | None = None) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.size, self.render_mode, self.closed = size, render_mode, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.x, self.t = float(self.np_random.uniform(-self.size, self.size)), 0
        return np.array([self.x], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.x, self.t = self.x + 0.3 * float(action[0]), self.t + 1
        reward, near = -abs(self.x), abs(self.x) < 0.1
        infos = {"reward/all": reward, "is_success": near, "text": "not asked for"}
        return np.array([self.x], np.float32), reward, False, self.t == 10, infos

    def render(self) -> Any:
        return np.full((16, 16, 3), 100, np.uint8)

    def close(self) -> None:
        self.closed = True


class Shared(Walk):
    """All of them move one body, as copies of a client of PyBullet would."""

    body: list[float] = [0.0]  # noqa: RUF012 - that is the point

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        seen, info = super().reset(seed=seed)
        self.body[0] = self.x
        return seen, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.x = self.body[0]
        seen = super().step(action)
        self.body[0] = self.x
        return seen


class Handle(Walk):
    """It holds what has no copy."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot copy a socket")


class Several:
    """Two agents, as PettingZoo's parallel environments have them."""

    possible_agents = ("a", "b")

    def __repr__(self) -> str:
        return "Several()"

    def observation_space(self, agent: str) -> Any:
        return gym.spaces.Discrete(2)

    action_space = observation_space
