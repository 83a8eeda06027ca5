"""Tasks whose reward random actions do not reach: a corridor, a maze, a place to stop at, bits to flip."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from algorithm.core.steps import Bool, Double, Float
from algorithm.env.toys.basic import Toy


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


ACCELERATION = 0.05  # a step, at most, along each axis
RADIUS, SLOW = 0.5, 0.1  # distance and speed below which a point is parked
_UNIT = 10.0  # of a distance as it is observed


class ToyParking(Toy[NDArray[np.float32], NDArray[np.float32]]):
    """A point in a plane that is to stop at a place; it begins at rest, ``distance`` away from it.

    observation: [4], the offset from the point to the place [2] in units of 10, and the point's velocity [2]
                 in units of 1 per step
    action:      [2], the acceleration in [−1, 1]; 1 is :data:`ACCELERATION`

    The reward is 1 where the point stops at the place, which ends the episode, else 0. Only the direction to
    the place is random. ``reset(options={"distance": 3})`` begins an episode at another distance.

    Half accelerating and half braking takes at most 2·√(distance/0.05) steps: 26 for the distance of 8.
    In the 60 steps of the id uniformly random accelerations stop there in 0.03 % of the episodes, in 1 % for
    a distance of 3 and in 11 % for a distance of 1. With an acceleration that hardly changes within an
    episode, the point passes the place without stopping.
    """

    def __init__(self, distance: float = 8.0) -> None:
        self._distance = _checked(distance)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin an episode, at ``options["distance"]`` if there is one. ValueError if it is not above 0.5."""
        self._now = _checked((options or {}).get("distance", self._distance))
        return super().reset(seed=seed)

    @override
    def _begin(self) -> None:
        angle = self.np_random.uniform(-np.pi, np.pi)
        self._offset: Double = self._now * np.array([np.cos(angle), np.sin(angle)])
        self._velocity: Double = np.zeros(2)

    @override
    def _act(self, action: NDArray[np.float32]) -> tuple[float, bool]:
        self._velocity = self._velocity + ACCELERATION * action
        self._offset = self._offset - self._velocity
        over = np.linalg.norm(self._offset) < RADIUS and np.linalg.norm(self._velocity) < SLOW
        return float(over), bool(over)

    @override
    def _observe(self) -> NDArray[np.float32]:
        return np.concatenate([self._offset / _UNIT, self._velocity]).astype(np.float32)


def _checked(distance: float) -> float:
    if not distance > RADIUS:
        raise ValueError(f"distance is {distance}; it must be above {RADIUS}")
    return float(distance)


Bits = NDArray[np.int8]


class ToyBits(Toy[dict[str, Any], np.int64]):
    """Flip bits, one a step, until they are those of a goal; half of them are wrong at first.

    An example of hindsight (arXiv 1707.01495, section 3.1).

    observation, achieved_goal: [bits] as they are; desired_goal: [bits] to be reached
    action: which bit to flip

    The reward is −1 after a step that leaves a wrong bit, else 0, and then the episode ends. The best policy
    flips the wrong bits, which gives 1 − bits/2: −5 with 12. In the 12 steps of the id uniformly random flips
    reach the goal in 0.13 % of the episodes; a failure gets −12.

    bits: an even number
    """

    optimum = -5.0

    def __init__(self, bits: int = 12) -> None:
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

    @override
    def _info(self) -> dict[str, Any]:
        return {"is_success": bool(self.compute_terminated(self._now, self._goal, {}))}
