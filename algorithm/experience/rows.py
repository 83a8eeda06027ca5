"""Rows of agents: arrays by name whose row i belongs to agent i of ``ids``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithm.core.data import Bool, Int, Scalar, State

AgentRows = dict[str, NDArray[Any]]
"""Arrays by name; row i of each belongs to agent i of ``ids``."""

NO_IDS: Int = np.zeros(0, np.int64)
"""Ids of no agent."""


def kinds(state: State) -> dict[str, str]:
    """Return dtype and shape of one agent's part of each array."""
    return {name: f"{value.dtype} {value.shape[1:]}" for name, value in state.arrays.items()}


def places(ids: Int, wanted: Int) -> Int:
    """Return the row of each of ``wanted`` [n] among ``ids``, −1 for one that has none."""
    place = {agent: row for row, agent in enumerate(ids.tolist())}
    return np.array([place.get(agent, -1) for agent in wanted.tolist()], np.int64)


def joined(first: AgentRows, second: AgentRows) -> AgentRows:
    """Return the rows of ``first``, then those of ``second``."""
    if not len(second["ids"]):
        return first
    return {name: np.concatenate((value, second[name])) for name, value in first.items()}


def picked(rows: AgentRows, which: Bool) -> AgentRows:
    """Return a copy of the rows where ``which`` is true."""
    return {name: value[which] for name, value in rows.items()}


def moved(rows: NDArray[Scalar], source: Int) -> NDArray[Scalar]:
    """Return rows: row i of the result is row ``source[i]``, or zeros where that is −1."""
    moved = np.zeros((len(source), *rows.shape[1:]), rows.dtype)
    known = source >= 0
    moved[known] = rows[source[known]]
    return moved


def mixed(where: Bool, one: NDArray[Scalar], other: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the rows of ``one`` where ``where`` is true, else those of ``other``."""
    mixed = other.copy()
    mixed[where] = one[where]
    return mixed
