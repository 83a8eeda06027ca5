"""Scenes of the player, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from tests.unity_player.academy import Academy
from tests.unity_player.agent import Action, Agent, Behaviour, Timing, Values
from tests.unity_player.sensors import Vector


def timing_of(academy: Academy, number: int, *, between: bool = True) -> Timing:
    """Return the period and offset of the ``number``-th agent of a scene."""
    options = academy.options
    return Timing(
        period=options.period,
        offset=number % options.period if options.offsets else 0,
        between=between,
        max_step=options.max_step,
    )


class Repeat(Agent):
    """Repeat two numbers, in episodes of one decision; the best mean return is 1."""

    @override
    def begin(self) -> None:
        self._target = self.rng.uniform(-0.9, 0.9, 2).astype(np.float32)

    @override
    def observe(self) -> Values:
        return [self._target]

    @override
    def act(self, action: Action) -> None:
        if not self.book.decision:
            return  # not asked in this episode yet
        self.reward += 1.0 - float(np.mean((action.continuous - self._target) ** 2)) / (0.9**2 / 3)
        self.end_episode()


CONTINUOUS = Behaviour("Continuous?team=0", lambda: [Vector("target", 2)], continuous=2)


def continuous(academy: Academy, area: int) -> None:
    """Two numbers are to be repeated."""
    for number in range(academy.options.agents):
        academy.add(Repeat(academy, CONTINUOUS, timing_of(academy, number, between=False)))


@dataclass(frozen=True)
class Task:
    """A scene with the mean return of its best policy, None where it is unknown."""

    scene: Callable[[Academy, int], None]
    optimum: float | None


TASKS = {"continuous": Task(continuous, 1.0)}
