"""Where the transitions of a training come from, as the trainer sees it."""

from __future__ import annotations

from typing import Protocol

from algorithm.data import State
from algorithm.run.console import Rows
from algorithm.run.group import Episode


class Feed(Protocol):
    """Hands transitions to the agents, a step at a time. In one process that is a ``Rollout``."""

    @property
    def steps(self) -> int:
        """Environment steps so far, all of whose transitions the agents have."""
        ...

    @property
    def agents(self) -> frozenset[tuple[str, int]]:
        """(behaviour, id) of everybody who acts now."""
        ...

    def step(self) -> list[Episode]:
        """Take a step, or wait a moment for one that somebody else takes; the episodes that ended with it."""
        ...

    def truncate(self) -> None:
        """Unfinished episodes end as truncated and new ones begin; for those who act elsewhere, nothing."""
        ...

    def state(self) -> State:
        """Between two steps: what it goes on from."""
        ...

    def load_state(self, state: State) -> list[str]:
        """Go on from what :meth:`state` gave. A line for a person on each thing that cannot be exact."""
        ...

    def metrics(self) -> dict[str, float]:
        """Values to log at a summary."""
        ...

    def rows(self) -> Rows:
        """More lines for the panel of a run: (name, text)."""
        ...
