"""Scenes for learning, with the mean return of the best policy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from typing_extensions import override

from algorithm.extras.unity.testing.academy import Academy
from algorithm.extras.unity.testing.agent import PlayerAgent
from algorithm.extras.unity.testing.data import Action, Behaviour, SensorValues, Timing
from algorithm.extras.unity.testing.sensors import Camera, Vector


def timing_of(academy: Academy, number: int, *, between: bool = True) -> Timing:
    """Return the period and offset of the ``number``-th agent of a scene."""
    options = academy.options
    return Timing(
        period=options.period,
        offset=number % options.period if options.offsets else 0,
        between=between,
        max_step=options.max_step,
    )


class RoundAgent(PlayerAgent):
    """Agent whose episodes have one decision: a round of an observation, an action and its reward."""

    @override
    def begin(self) -> None:
        self._draw()

    @override
    def act(self, action: Action) -> None:
        if not self.book.decision:
            return  # after a reset: this episode has had no decision yet
        self.reward += self._score(action)
        self._draw()  # the last observation is of the next round
        self.academy.channels.statistic("Rounds/Score", self.reward)
        self.end_episode()

    @abstractmethod
    def _draw(self) -> None:
        """Draw the observation of a new round."""

    @abstractmethod
    def _score(self, action: Action) -> float:
        """Return the reward of ``action`` in this round."""


class Repeat(RoundAgent):
    """Agent that should repeat two numbers, as in ToyContinuous: return 1, or 0 for the best constant."""

    @override
    def _draw(self) -> None:
        self._target = self.rng.uniform(-0.9, 0.9, 2).astype(np.float32)

    @override
    def observe(self) -> SensorValues:
        return [self._target]

    @override
    def _score(self, action: Action) -> float:
        return 1.0 - float(np.mean((action.continuous - self._target) ** 2)) / (0.9**2 / 3)


class Pick(RoundAgent):
    """Agent that should choose the shown index in each of two branches, or the next one if it is masked.

    A branch gives ½ for the shown index, ¼ for the next one. In half of the rounds the shown one is masked.
    The best policy gets 2·(½·½ + ½·¼) = ¾.
    """

    sizes = (3, 4)

    @override
    def _draw(self) -> None:
        self._shown = [int(self.rng.integers(size)) for size in self.sizes]
        self._masked = [bool(self.rng.integers(2)) for _ in self.sizes]

    @override
    def observe(self) -> SensorValues:
        pairs = zip(self._shown, self.sizes, strict=True)
        return [np.concatenate([np.eye(size, dtype=np.float32)[shown] for shown, size in pairs])]

    @override
    def mask(self) -> list[bool]:
        return [
            masked and at == shown
            for shown, masked, size in zip(self._shown, self._masked, self.sizes, strict=True)
            for at in range(size)
        ]

    @override
    def _score(self, action: Action) -> float:
        branches = zip(action.discrete, self._shown, self._masked, self.sizes, strict=True)
        worth = 0.0
        for chosen, shown, masked, size in branches:
            if masked and chosen == shown:
                raise ValueError(f"the action {chosen} is masked")
            worth += (0.5, 0.25)[d] if (d := (chosen - shown) % size) < 2 else 0.0
        return worth


class Spot(RoundAgent):
    """Agent that should choose the quarter of an image with the bright square; the best return is 1."""

    size = 24

    @override
    def _draw(self) -> None:
        self._quarter = int(self.rng.integers(4))
        picture = self.rng.integers(60, size=(self.size, self.size, 3)).astype(np.uint8)
        half = self.size // 2
        row, column = self.rng.integers(half - 5, size=2) + half * np.array(divmod(self._quarter, 2))
        picture[row : row + 6, column : column + 6] = self.rng.integers(150, 256, 3)
        self._picture = picture

    @override
    def observe(self) -> SensorValues:
        return [self._picture]

    @override
    def _score(self, action: Action) -> float:
        return float(action.discrete[0] == self._quarter)


class Rival(PlayerAgent):
    """Agent that chooses a number without seeing the other's; :func:`compare` rewards the higher one."""

    @override
    def begin(self) -> None:
        self.number: float | None = None

    @override
    def observe(self) -> SensorValues:
        return [np.zeros(1, np.float32)]

    @override
    def act(self, action: Action) -> None:
        if self.book.decision:
            self.number = float(action.continuous[0])


def compare(first: Rival, second: Rival) -> None:
    """End the game of two rivals that have chosen: the higher number gets 1, the lower one −1."""
    if first.number is not None and second.number is not None:
        gain = float(np.sign(first.number - second.number))
        for rival, reward in ((first, gain), (second, -gain)):
            rival.reward = reward
            rival.end_episode()


CONTINUOUS = Behaviour("Continuous?team=0", lambda: [Vector("target", 2)], continuous=2)
BRANCHES = Behaviour("Branches?team=0", lambda: [Vector("shown", 7)], branches=(3, 4))
DUEL = Behaviour("Duel?team=0", lambda: [Vector("nothing", 1)], continuous=1)
CAMERA = Behaviour("Camera?team=0", lambda: [Camera("camera", Spot.size, Spot.size)], branches=(4,))


def add_agents(academy: Academy, kind: type[PlayerAgent], behaviour: Behaviour) -> list[PlayerAgent]:
    """Add ``--agents`` agents that act only at their decisions; return them."""
    agents = [
        kind(academy, behaviour, timing_of(academy, number, between=False))
        for number in range(academy.options.agents)
    ]
    for agent in agents:
        academy.add(agent)
    return agents


def continuous(academy: Academy, area: int) -> None:
    """Add ``--agents`` agents of :class:`Repeat`; all areas are the same."""
    add_agents(academy, Repeat, CONTINUOUS)


def branches(academy: Academy, area: int) -> None:
    """Add agents of :class:`Pick`."""
    add_agents(academy, Pick, BRANCHES)


def camera(academy: Academy, area: int) -> None:
    """Add agents of :class:`Spot`."""
    add_agents(academy, Spot, CAMERA)


def two(academy: Academy, area: int) -> None:
    """Add agents of two behaviours."""
    continuous(academy, area)
    branches(academy, area)


def teams(academy: Academy, area: int) -> None:
    """Add two teams of one behaviour."""
    for team in (0, 1):
        add_agents(academy, Repeat, replace(CONTINUOUS, name=f"Continuous?team={team}"))


def duel(academy: Academy, area: int) -> None:
    """Add the rivals of two teams."""
    first, second = (
        Rival(academy, replace(DUEL, name=f"Duel?team={team}"), timing_of(academy, 0, between=False))
        for team in (0, 1)
    )
    academy.add(first)
    academy.add(second)
    academy.after_step.append(lambda: compare(first, second))


LEARNABLE: dict[str, tuple[Callable[[Academy, int], None], dict[str, float]]] = {
    "continuous": (continuous, {"Continuous": 1.0}),
    "branches": (branches, {"Branches": 0.75}),
    "camera": (camera, {"Camera": 1.0}),
    "two": (two, {"Continuous": 1.0, "Branches": 0.75}),
}
"""Name -> scene, and the best mean return of each behaviour."""
