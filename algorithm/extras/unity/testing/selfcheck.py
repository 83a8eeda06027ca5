"""Scenes whose observations identify agent, episode and decision, to check the trainer's data."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from algorithm.extras.unity.testing.academy import Academy
from algorithm.extras.unity.testing.agent import PlayerAgent
from algorithm.extras.unity.testing.data import Action, Behaviour, SensorValues
from algorithm.extras.unity.testing.sensors import Vector
from algorithm.extras.unity.testing.tasks import timing_of

KEYS = ("player", "agent", "episode", "decision")
"""The first numbers of an observation; the last action follows."""


LENGTH = 20
"""Mean number of steps of an episode."""


def player_number(seed: int) -> int:
    """Return the number of a process in observations, which float32 holds exactly."""
    return seed % (1 << 20)


class Echo(PlayerAgent):
    """Agent that observes its own ids (:data:`KEYS`) and its last action.

    Ends, interruptions, masks, rewards and group rewards are random. Options of the command line: with
    ``--respawn`` every episode has a new agent; with ``--destroy P`` an agent is destroyed with that
    probability in each step, and another one appears some steps later.
    """

    @override
    def begin(self) -> None:
        self._acted = 0
        self._draw_mask()

    def _draw_mask(self) -> None:
        """Mask some actions of each branch, never all of them."""
        self._mask = []
        for size in self.behaviour.branches:
            masked = self.rng.random(size) < 0.3
            masked[self.rng.integers(size)] = False
            self._mask += masked.tolist()

    @override
    def observe(self) -> SensorValues:
        action, book = self.action, self.book
        keys = [player_number(self.academy.seed), self.id, book.episode, book.decision]
        return [np.concatenate([keys, action.continuous, action.discrete]).astype(np.float32)]

    @override
    def mask(self) -> list[bool]:
        return self._mask if self.behaviour.branches else []

    @override
    def act(self, action: Action) -> None:
        if self.asked_now and self.book.decision:
            self._check(action)
            self._draw_mask()
        self._acted += 1
        self.reward += float(self.rng.normal())
        self.group_reward += float(self.rng.normal()) if self.group else 0.0
        if self.rng.random() < self.academy.options.destroy:
            self._replace(int(self.rng.integers(1, 20)))
        elif self.rng.random() < 1 / LENGTH:
            self.academy.channels.statistic("Episode/Length", self._acted)
            self.academy.channels.statistic("Episode/Count", 1, "sum")
            if self.academy.options.respawn:
                self._replace(0)
            elif self.rng.random() < 0.3:
                self.interrupt()
            else:
                self.end_episode()

    def _check(self, action: Action) -> None:
        """Raise ValueError for a masked or unbounded action."""
        at = 0
        for chosen, size in zip(action.discrete, self.behaviour.branches, strict=True):
            if self._mask[at + int(chosen)]:
                raise ValueError(f"agent {self.id} took the masked action {chosen} of {self._mask}")
            at += size
        if not np.all(np.abs(action.continuous) <= 1):
            raise ValueError(f"agent {self.id} got {action.continuous}, outside of [-1, 1]")

    def _replace(self, steps: int) -> None:
        """Destroy the agent; another one appears after ``steps`` steps."""
        self.destroy()
        self.academy.add_later(steps, self.successor)


def echo_behaviour(name: str, continuous: int, branches: tuple[int, ...]) -> Behaviour:
    """Return a behaviour that observes the keys of a decision and the action before it."""
    size = len(KEYS) + continuous + len(branches)
    return Behaviour(f"{name}?team=0", lambda: [Vector("echo", size)], continuous, branches)


ECHOES = (echo_behaviour("Echo", 2, ()), echo_behaviour("EchoChoice", 1, (3, 2)))


def echo(academy: Academy, area: int) -> None:
    """Add agents of one behaviour."""
    _add(academy, ECHOES[:1])


def echoes(academy: Academy, area: int) -> None:
    """Add agents of two behaviours; those of the second one form a group and decide one step later."""
    _add(academy, ECHOES)


def _add(academy: Academy, behaviours: tuple[Behaviour, ...]) -> None:
    for group, behaviour in enumerate(behaviours):
        for number in range(academy.options.agents):
            timing = timing_of(academy, number + group)
            academy.add(Echo(academy, behaviour, timing, group=group))


SELF_CHECKING = {"echo": echo, "echoes": echoes}
