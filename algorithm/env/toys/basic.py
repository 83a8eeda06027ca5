"""The class of all toys, and one-step tasks: one for each kind of observation and action.

The tasks measure whether learning works: an episode is one round or a few, rounds are independent, and the
return of the best policy is known in closed form. ``optimum`` is the mean return of the best policy,
``chance`` the highest one of policies without one of the observations: a higher return needs all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import permutations
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.core import ActType, ObsType
from numpy.typing import NDArray
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


class Rounds(Toy[ObsType, ActType]):
    """Independent rounds of an observation, an action and its reward.

    A terminal state ends the episode; its observation is that of a round without an action.
    """

    chance: ClassVar[float]
    rounds: ClassVar[int] = 1

    @override
    def _begin(self) -> None:
        self._played = 0

    @override
    def _act(self, action: ActType) -> tuple[float, bool]:
        reward = self._reward(action)
        self._played += 1
        return reward, self._played == self.rounds

    @override
    @abstractmethod
    def _observe(self) -> ObsType:
        """Draw a round from ``self.np_random``; return its observation."""

    @abstractmethod
    def _reward(self, action: ActType) -> float:
        """Return the reward of ``action`` in this round."""


class ToyContinuous(Rounds[NDArray[np.float32], NDArray[np.float32]]):
    """Repeat two numbers, uniform in [-0.9, 0.9].

    The reward is 1 − mean (a − target)² / 0.27, where 0.27 is the variance of a target: 1 for the targets, 0
    on average for the best constant and −1.23 for uniformly random actions; 0.95 is a root mean squared error
    of 0.12.
    """

    chance = 0.0

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-0.9, 0.9, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    @override
    def _observe(self) -> NDArray[np.float32]:
        self._target = self.np_random.uniform(-0.9, 0.9, 2).astype(np.float32)
        return self._target.copy()

    @override
    def _reward(self, action: NDArray[np.float32]) -> float:
        return 1.0 - float(np.mean((action - self._target) ** 2)) / (0.9**2 / 3)


class ToyDiscrete(Rounds[np.int64, np.int64]):
    """Name the shown one of five things: 1 if right, else 0. A guess is worth 1/5."""

    chance = 1 / 5

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Discrete(5)
        self.action_space = gym.spaces.Discrete(5)

    @override
    def _observe(self) -> np.int64:
        self._shown = self.np_random.integers(5)
        return self._shown

    @override
    def _reward(self, action: np.int64) -> float:
        return float(action == self._shown)


class ToyBranches(Rounds[NDArray[np.int8], NDArray[np.int64]]):
    """Make three choices, of 3, 4 and 2 things, shown as nine bits of which three are set.

    The reward is the share of right choices, a sum over the branches as value decomposition can represent
    (VDN, arXiv 1706.05296); guesses are worth (1/3 + 1/4 + 1/2) / 3 = 13/36.
    """

    chance = 13 / 36

    def __init__(self) -> None:
        self.observation_space = gym.spaces.MultiBinary(9)
        self.action_space = gym.spaces.MultiDiscrete([3, 4, 2])

    @override
    def _observe(self) -> NDArray[np.int8]:
        self._right = self.np_random.integers([3, 4, 2])
        bits = np.zeros(9, np.int8)
        bits[self._right + np.array([0, 3, 7])] = 1
        return bits

    @override
    def _reward(self, action: NDArray[np.int64]) -> float:
        return float(np.mean(action == self._right))


class ToyHybrid(Rounds[dict[str, Any], dict[str, Any]]):
    """Choose one of three and give the number that belongs to the choice.

    ``targets`` are −0.6, 0 and 0.6 in any order, one for each choice; ``best`` is the best choice: 18
    different rounds. The reward is 0.6 for the best choice, and for the value 0.4·(1 − (value − target of the
    choice)² / 0.36).

    Without ``targets`` the best policy takes the best choice and the value 0, for 0.6 + 0.4/3 = 11/15;
    without ``best`` any choice and its target, for 0.6/3 + 0.4 = 3/5; without both it gets 1/3, uniformly
    random actions −0.04.

    While choices are still random the best value is the mean of the targets, 0, and there the best choice
    beats the others: policies of choice and value that are independent given the observation find the optimum
    together.
    """

    chance = 11 / 15

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Dict(
            best=gym.spaces.Discrete(3), targets=gym.spaces.Box(-0.6, 0.6, (3,), np.float32)
        )
        self.action_space = gym.spaces.Dict(
            choice=gym.spaces.Discrete(3), value=gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        )
        self._orders = np.array(list(permutations((-0.6, 0.0, 0.6))), np.float32)

    @override
    def _observe(self) -> dict[str, Any]:
        self._best = self.np_random.integers(3)
        self._targets = self.np_random.choice(self._orders)
        return {"best": self._best, "targets": self._targets.copy()}

    @override
    def _reward(self, action: dict[str, Any]) -> float:
        miss = float(action["value"][0] - self._targets[action["choice"]])
        return 0.6 * bool(action["choice"] == self._best) + 0.4 * (1.0 - miss**2 / 0.36)


class ToyMasked(Rounds[np.int64, np.int64]):
    """Take the best of six actions that ``info["action_mask"]`` allows; four rounds an episode.

    Shown s, action s is worth 1, the next one 0.8 and so on, in a circle, down to 0 for the one before s. In
    half of the rounds s itself is masked, and in every round one of the others at random. A masked action
    raises ValueError.

    The best policy gets 1 where s is allowed, else 0.8, or 0.6 where the second one is masked too: ½ +
    ½·(⅘·0.8 + ⅕·0.6) = 0.88 a round. Uniformly random allowed actions get 0.46. A mask is weak evidence of s:
    the best policy on masks alone gets 0.61. The value of an action does not depend on the mask, so values
    are functions of observation and action.
    """

    optimum, chance, rounds = 4 * 0.88, 4 * 0.61, 4

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Discrete(6)
        self.action_space = gym.spaces.Discrete(6)

    @override
    def _observe(self) -> np.int64:
        self._shown = self.np_random.integers(6)
        self._mask = np.ones(6, np.int8)
        self._mask[self._shown] = self.np_random.integers(2)
        self._mask[(self._shown + self.np_random.integers(1, 6)) % 6] = 0
        return self._shown

    @override
    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._mask.copy()}

    @override
    def _reward(self, action: np.int64) -> float:
        if not self._mask[action]:
            raise ValueError(f"the action {action} is masked: {self._mask}")
        return 1.0 - (action - self._shown) % 6 / 5
