"""A maze with a reward at its far end only, which random movements do not reach."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.core.data import Double
from algorithm.env.toys.base import Toy

MAZE = (
    "    G",
    " ####",
    "     ",
    "#### ",
    "S    ",
)
"""Cells: a wall ``#``, the start ``S``, the goal ``G``; nothing but walls is outside."""

SPEED = 0.6  # cells a step, at most, along each axis
_START = 0.3  # cells from the middle of S, at most, along each axis
_GAP = 1e-6  # cells that remain between a point and the wall that stopped it


class ToyMaze(Toy[dict[str, Any], NDArray[np.float32]]):
    """A point that moves through :data:`MAZE`; an episode ends, with 1, in the goal.

    cell:     which of the 25 cells it is in, 5 · column + row, counted from the bottom left
    position: [2], from −1 at the left to 1 at the right, from −1 at the bottom to 1 at the top
    action:   [2], its velocity to the right and upwards, in [−1, 1]; 1 is :data:`SPEED` cells a step

    It moves along one axis, then along the other, each time up to the first wall. The start differs a
    little from episode to episode, and nothing else is random.

    The way has 16 cells, which takes 26 steps. Uniformly random velocities move it by 0.35 cells a step along
    each axis, in root mean square, so that in the 100 steps of the id a walk gets some 3.5 cells far.
    """

    def __init__(self) -> None:
        self._cells = np.array([list(row) for row in reversed(MAZE)]).T  # [x, y], y upwards
        self.observation_space = gym.spaces.Dict(
            cell=gym.spaces.Discrete(self._cells.size), position=gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        )
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    @override
    def _begin(self) -> None:
        middle = np.argwhere(self._cells == "S")[0] + 0.5
        self._at: Double = middle + self.np_random.uniform(-_START, _START, 2)

    @override
    def _act(self, action: NDArray[np.float32]) -> tuple[float, bool]:
        for axis in range(2):
            self._move(axis, SPEED * float(action[axis]))
        over = bool(self._cells[tuple(self._at.astype(int))] == "G")
        return float(over), over

    @override
    def _observe(self) -> dict[str, Any]:
        x, y = self._at.astype(int)
        position = 2.0 * self._at / self._cells.shape - 1.0
        return {"cell": np.int64(x * self._cells.shape[1] + y), "position": position.astype(np.float32)}

    def _move(self, axis: int, distance: float) -> None:
        """Move along an axis, by less than a cell."""
        here, there = self._at.astype(int), self._at.copy()
        there[axis] += distance
        cell = np.floor(there).astype(int)
        if not 0 <= cell[axis] < self._cells.shape[axis] or self._cells[tuple(cell)] == "#":
            there[axis] = here[axis] + 1 - _GAP if distance > 0 else here[axis] + _GAP
        self._at = there
