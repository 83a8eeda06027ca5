"""The base class of the small environments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import gymnasium as gym
from gymnasium.core import ActType, ObsType
from typing_extensions import override


class Toy(gym.Env[ObsType, ActType], ABC):
    """An environment with a known optimum, which ends by itself and refuses actions outside its space.

    optimum: mean return of the best policy
    """

    optimum: ClassVar[float] = 1.0

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsType, dict[str, Any]]:
        super().reset(seed=seed)
        self._begin()
        return self._observe(), self._info()

    @override
    def step(self, action: ActType) -> tuple[ObsType, float, bool, bool, dict[str, Any]]:
        """Return the result of an action. Raises ValueError outside the action space."""
        if not self.action_space.contains(action):
            raise ValueError(f"the action {action!r} is not in {self.action_space}")
        reward, over = self._act(action)
        return self._observe(), reward, over, False, self._info()

    @abstractmethod
    def _begin(self) -> None:
        """Begin an episode."""

    @abstractmethod
    def _act(self, action: ActType) -> tuple[float, bool]:
        """Take an action; return the reward, and whether the task is over."""

    @abstractmethod
    def _observe(self) -> ObsType:
        """Return the current observation."""

    def _info(self) -> dict[str, Any]:
        return {}
