"""Goals that random actions hardly ever reach: an example of hindsight (arXiv 1707.01495, section 3.1)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.core.data import Bool, Float
from algorithm.env.toys.base import Toy

Bits = NDArray[np.int8]


class ToyBits(Toy[dict[str, Any], np.int64]):
    """Flip bits, one a step, until they are those of a goal; half of them are wrong at first.

    observation, achieved_goal: [bits] as they are; desired_goal: [bits] as they shall be
    action: which bit to flip

    The reward is −1 after a step that leaves a wrong bit, else 0, and then the episode ends. The best policy
    flips the wrong bits, which gives 1 − bits/2: −5 with 12. In the 12 steps of the id uniformly random flips
    get there in 0.13 % of the episodes; a failure gets −12.

    Raises ValueError unless bits is an even number from 2 on.
    """

    optimum = -5.0

    def __init__(self, bits: int = 12) -> None:
        if bits < 2 or bits % 2:
            raise ValueError(f"bits is {bits}; it must be an even number from 2 on")
        self._bits = bits
        part = gym.spaces.MultiBinary(bits)
        self.observation_space = gym.spaces.Dict(observation=part, achieved_goal=part, desired_goal=part)
        self.action_space = gym.spaces.Discrete(bits)

    def compute_reward(self, achieved_goal: Bits, desired_goal: Bits, info: Any) -> Float:  # noqa: ANN401
        """Return 0 where all bits are right, else −1; goals [..., bits] → rewards [...]."""
        wrong: Bool = (achieved_goal != desired_goal).any(-1)
        return -wrong.astype(np.float32)

    def compute_terminated(self, achieved_goal: Bits, desired_goal: Bits, info: Any) -> Bool:  # noqa: ANN401
        """Return whether all bits are right; shapes as for the reward."""
        right: Bool = (achieved_goal == desired_goal).all(-1)
        return right

    @override
    def _begin(self) -> None:
        self._now: Bits = self.np_random.integers(0, 2, self._bits, np.int8)
        wrong = self.np_random.permutation(self._bits) < self._bits // 2
        self._goal: Bits = self._now ^ wrong

    @override
    def _act(self, action: np.int64) -> tuple[float, bool]:
        self._now[action] ^= 1
        goals = self._now, self._goal
        return float(self.compute_reward(*goals, {})), bool(self.compute_terminated(*goals, {}))

    @override
    def _observe(self) -> dict[str, Any]:
        seen = {"observation": self._now, "achieved_goal": self._now, "desired_goal": self._goal}
        return {name: bits.copy() for name, bits in seen.items()}
