"""Results of a step of all players, by behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from algorithm.core.data import Int
from algorithm.core.spec import AgentSpec
from algorithm.env.base import Observation, StepResult
from algorithm.env.unity.spaces import AgentStates


class ResultRows:
    """Rows of one behaviour's result, as they come from the messages of all players."""

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec
        self._states = [_nobody(spec)]  # so that there is always something to join
        self._total = 0
        self.ids: list[int] = []
        self._seen: list[int] = []  # place of the observation to act on among all states
        self._end: list[int] = []  # place of the end, -1 without one
        self._left: list[bool] = []

    def add(self, *states: AgentStates) -> int:
        """Add the agents of a message; return the place of the first one."""
        base = self._total
        for one in states:
            if len(one):
                self._states.append(one)
                self._total += len(one)
        return base

    def put(self, number: int, seen: int | None, end: int | None) -> None:
        """Add a row. seen, end: places of the observation to act on and of the end; not both None."""
        place = end if seen is None else seen
        assert place is not None
        self.ids.append(number)
        self._seen.append(place)
        self._end.append(-1 if end is None else end)
        self._left.append(seen is None)

    def observation(self) -> Observation:
        """Return the observations to act on, in the order of the agents' numbers."""
        return self._observation(self._order(), np.array(self._seen, np.int64))

    def result(self, vanished: Sequence[int]) -> StepResult:
        """Return the rows in the order of the agents' numbers."""
        order = self._order()
        seen, end = np.array(self._seen, np.int64), np.array(self._end, np.int64)
        ended, last = (end >= 0)[order], np.where(end >= 0, end, seen)
        left = np.array(self._left, np.bool_)[order]
        interrupted = self._column("interrupted")[last][order] & ended
        return StepResult(
            **vars(self._observation(order, seen)),
            reward=self._column("reward")[last][order],
            terminated=ended & ~interrupted,
            truncated=interrupted,
            final=self._observation(order, last) if ended.any() else None,
            left=left if left.any() else None,
            vanished=np.array(vanished, np.int64) if vanished else None,
        )

    def _order(self) -> Int:
        order: Int = np.argsort(np.array(self.ids, np.int64), kind="stable")
        return order

    def _observation(self, order: Int, places: Int) -> Observation:
        rows = places[order]
        return Observation(
            ids=np.array(self.ids, np.int64)[order],
            obs={
                name: np.concatenate([state.obs[name] for state in self._states])[rows]
                for name in self._spec.obs.names
            },
            action_mask=self._column("action_mask")[rows],
        )

    def _column(self, name: str) -> Any:  # noqa: ANN401 - an array of the column's dtype
        return np.concatenate([getattr(state, name) for state in self._states])


def _nobody(spec: AgentSpec) -> AgentStates:
    return AgentStates(
        ids=[],
        obs=spec.obs.zeros(0),
        reward=np.zeros(0, np.float32),
        action_mask=spec.action.all_allowed(0),
        interrupted=np.zeros(0, np.bool_),
    )
