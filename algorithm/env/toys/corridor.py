"""A long corridor with a reward at its far end only, which random actions do not reach."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.env.toys.base import Toy


class ToyCorridor(Toy[NDArray[np.float32], np.int64]):
    """``length`` cells in a row; an episode starts in the first one and ends, with 1, in the last one.

    bits:    [length], that of the agent's cell is set
    actions: back, forward, one cell each; at the wall behind the first cell back leaves the agent there

    Random actions hardly reach the end. The agent's place is that of |S + ½| − ½ for a symmetric walk S on
    the integers, so by the reflection principle and Hoeffding's inequality the probability that it reaches
    cell d within T steps is at most 4 exp(−d²/2T): 2e-6 for the 59 cells and 120 steps of the id.

    ``visited`` counts visits to each cell over all episodes; the coverage is the number of visited cells. The
    step limit is Gymnasium's, ``max_episode_steps`` among the arguments of ``gymnasium.make``.
    """

    def __init__(self, length: int = 60) -> None:
        if length < 2:
            raise ValueError(f"length is {length}; it must be at least 2")
        self.observation_space = gym.spaces.Box(0.0, 1.0, (length,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.visited = np.zeros(length, np.int64)

    @property
    def coverage(self) -> int:
        """Number of cells visited so far."""
        return int((self.visited > 0).sum())

    @override
    def _begin(self) -> None:
        self._at = 0

    @override
    def _act(self, action: np.int64) -> tuple[float, bool]:
        self._at = max(0, self._at + 2 * int(action) - 1)
        over = self._at == len(self.visited) - 1
        return float(over), over

    @override
    def _observe(self) -> NDArray[np.float32]:
        self.visited[self._at] += 1
        bits = np.zeros(len(self.visited), np.float32)
        bits[self._at] = 1.0
        return bits
