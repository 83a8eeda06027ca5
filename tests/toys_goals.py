"""Flipped bits with something wrong, or different, about what is said of goals."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from algorithm.env.toys.exploration import ToyBits


class Bare(ToyBits):
    """Without a reward for other goals."""

    @property
    def compute_reward(self) -> Any:
        raise AttributeError("compute_reward")

    def _act(self, action: np.int64) -> tuple[float, bool]:
        self._now[action] ^= 1
        return -1.0, False


class Wide(ToyBits):
    """The goal is shown as numbers, what is achieved as bits."""

    def __init__(self) -> None:
        super().__init__()
        parts = {**self.observation_space.spaces, "desired_goal": gym.spaces.Box(0, 1, (12,), np.float32)}
        self.observation_space = gym.spaces.Dict(parts)


class Saying(ToyBits):
    """Says something else of goals than it steps."""

    def _act(self, action: np.int64) -> tuple[float, bool]:
        self._now[action] ^= 1
        return -1.0, False


class Long(Saying):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -(achieved_goal != desired_goal).astype(float)


class Text(Saying):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return "good"


class Nan(Saying):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return np.full(len(achieved_goal) if achieved_goal.ndim > 1 else (), np.nan)


class Informed(Saying):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -1.0 if info["step"] else 0.0


class Costly(ToyBits):
    """A step costs more than its goal says."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return (obs, reward - 0.5, *rest)


class Single(ToyBits):
    """One goal at a time."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -float((achieved_goal != desired_goal).any())


class Undecided(ToyBits):
    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return True if achieved_goal.ndim > 1 else None

    def _act(self, action: np.int64) -> tuple[float, bool]:
        self._now[action] ^= 1
        return -1.0, False


class Later(ToyBits):
    """Sound at first, and then no more; one of many."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        found = super().compute_reward(achieved_goal, desired_goal, info)
        return np.where(np.arange(found.size) == 5, np.inf, found) if found.size > 5 else found


class Fewer(ToyBits):
    """Later on, fewer rewards than goals."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        found = super().compute_reward(achieved_goal, desired_goal, info)
        return found[:5] if found.size > 5 else found


class More(ToyBits):
    """Something else than a goal is seen as well, and what is usually seen has parts."""

    def __init__(self) -> None:
        super().__init__()
        seen = gym.spaces.Dict(bits=self.observation_space["observation"])
        parts = {**self.observation_space.spaces, "observation": seen, "wind": gym.spaces.Box(0, 1, (2,))}
        self.observation_space = gym.spaces.Dict(parts)

    def _observe(self) -> dict[str, Any]:
        seen = super()._observe()
        return {**seen, "observation": {"bits": seen["observation"]}, "wind": np.ones(2, np.float32)}


TOYS = (Bare, Wide, Long, Text, Nan, Informed, Costly, Single, Undecided, Later, Fewer, More)

for _toy in TOYS:
    gym.register(f"{_toy.__name__}-v0", f"{__name__}:{_toy.__name__}", max_episode_steps=12)
