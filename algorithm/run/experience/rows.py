"""Agents of a behaviour as rows: row i of every array belongs to agent i of ``ids``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithm.agents.roles import Policy
from algorithm.core.data import ActorOutput, Bool, Float, Int, Scalar, State
from algorithm.core.spec import AgentSpec
from algorithm.env.base import Observation

AgentRows = dict[str, NDArray[Any]]
"""Arrays by name; row i of each belongs to agent i of ``ids``."""

NO_IDS: Int = np.zeros(0, np.int64)
"""Ids of no agent."""


def kinds(state: State) -> dict[str, str]:
    """Return dtype and shape of one agent's row in each array, as text."""
    return {name: f"{value.dtype} {value.shape[1:]}" for name, value in state.arrays.items()}


def places(ids: Int, others: Int) -> Int:
    """Return the row of each id of ``others`` [n] in ``ids`` [N], −1 for a missing one."""
    place = {agent: row for row, agent in enumerate(ids.tolist())}
    return np.array([place.get(agent, -1) for agent in others.tolist()], np.int64)


def joined(first: AgentRows, second: AgentRows) -> AgentRows:
    """Return the rows of ``first``, then those of ``second``, which has the same names.

    If ``second`` has no agents, returns ``first`` itself, not a copy.
    """
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


def mixed(where: Bool, chosen: NDArray[Scalar], other: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the rows of ``chosen`` where ``where`` [N] is true, else those of ``other``."""
    mixed = other.copy()
    mixed[where] = chosen[where]
    return mixed


def recorded(carry: Float, stored: tuple[int, ...]) -> Float:
    """Return the stored share of a carry [N, *C]: its first numbers, in the shape ``stored``."""
    flat = carry.reshape(len(carry), math.prod(carry.shape[1:]))
    return flat[:, : math.prod(stored)].reshape(len(carry), *stored)


class LiveAgents:
    """State of one behaviour's agents between two steps: row i of every array belongs to agent ``ids[i]``.

    Agents that wait have no row: they are kept apart, with their last action, until their ids appear again.
    """

    def __init__(self, name: str, spec: AgentSpec, policy: Policy, first: Observation) -> None:
        self.name, self.policy, self._spec = name, policy, spec
        n = len(first.ids)
        self.obs, self.action_mask = dict(first.obs), first.action_mask
        self.prev_action = spec.action.padding(n)
        self.carry: Float = policy.initial_carry(n)
        self.step = np.zeros(n, np.int64)
        self.total = np.zeros(n, np.float64)
        self.began: Int = np.arange(n)  # number of each episode, in the order in which they begin
        self._num_begun = n
        self._agents: frozenset[tuple[str, int]] | None = None
        self._name_rows(first.ids)
        self._waiting = {k: value[:0].copy() for k, value in self._rows(self._nobody_acts()).items()}

    @property
    def agents(self) -> frozenset[tuple[str, int]]:
        """(behaviour, id) of every agent, waiting or not."""
        if self._agents is None:
            ids = (*self.ids.tolist(), *self._waiting["ids"].tolist())
            self._agents = frozenset((self.name, agent) for agent in ids)
        return self._agents

    @property
    def present(self) -> Int:
        """Ids [n] of all agents, waiting or not."""
        waiting: Int = self._waiting["ids"]
        return np.concatenate((self.ids, waiting)) if len(waiting) else self.ids

    @property
    def open_episodes(self) -> dict[tuple[str, int], int]:
        """(behaviour, id) -> number of its episode, of every agent; numbers follow the order of beginning."""
        every = ((self.ids, self.began), (self._waiting["ids"], self._waiting["began"]))
        return {
            (self.name, agent): number
            for ids, began in every
            for agent, number in zip(ids.tolist(), began.tolist(), strict=True)
        }

    @property
    def unfinished(self) -> list[int]:
        """Ids of agents with a transition in an episode that has not ended."""
        waiting = self._waiting
        return [*self.ids[self.step > 0].tolist(), *waiting["ids"][waiting["step"] > 0].tolist()]

    def _nobody_acts(self) -> ActorOutput:
        """Return an output for no agents, [0, ...]."""
        action = self._spec.action
        return ActorOutput(
            action=action.padding(0),
            z=np.zeros((0, action.continuous), np.float32),
            behaviour_logp=np.zeros((0, action.record_size), np.float32),
            carry=self.carry[:0],
        )

    def _name_rows(self, ids: Int) -> None:
        """Set the agent of each row: ``ids[i]`` of row i."""
        named = ids.tolist()
        if len(set(named)) != len(named):
            raise ValueError(f"an id of {self.name!r} appears twice in {named}")
        self.ids: Int = ids
        self._agents = None
        self._nobody: Bool = np.zeros(len(named), np.bool_)

    def _rows(self, acted: ActorOutput | None = None) -> AgentRows:
        """Return the arrays of all present agents, and those of their last output ``acted``, if any."""
        rows: AgentRows = {
            "ids": self.ids,
            "action_mask": self.action_mask,
            "prev_action": self.prev_action,
            "carry": self.carry,
            "step": self.step,
            "total": self.total,
            "began": self.began,
        }
        rows |= {f"obs/{name}": value for name, value in self.obs.items()}
        if acted is not None:
            rows |= {f"acted/{name}": value for name, value in vars(acted).items()}
        return rows

    def _set_rows(self, rows: Mapping[str, Any]) -> None:
        """Make the agents of ``rows`` the present ones."""
        self._name_rows(rows["ids"])
        self.obs = {name: rows[f"obs/{name}"] for name in self.obs}
        self.action_mask, self.prev_action, self.carry = (
            rows["action_mask"],
            rows["prev_action"],
            rows["carry"],
        )
        self.step, self.total, self.began = rows["step"], rows["total"], rows["began"]

    def _move(self, ids: Int) -> None:
        """Rearrange the rows to those of ``ids`` [n]; new agents have zeros until their episodes begin."""
        source = places(self.ids, ids)
        rows = {name: moved(value, source) for name, value in self._rows().items()}
        self._set_rows({**rows, "ids": ids})

    def _begin(self, rows: Int) -> None:
        """Begin the episodes of the agents in these rows, with fresh memory and counts."""
        if len(rows) == 0:
            return
        self.prev_action, self.carry = self.prev_action.copy(), self.carry.copy()
        self.prev_action[rows] = 0.0
        self.carry[rows] = self.policy.initial_carry(len(rows))
        self.step[rows] = 0
        self.total[rows] = 0.0
        self.began[rows] = np.arange(self._num_begun, self._num_begun + len(rows))
        self._num_begun += len(rows)

    def state(self) -> State:
        """Return the state of all agents, between two steps."""
        waiting = {f"waiting/{name}": value for name, value in self._waiting.items()}
        return State(self._rows() | waiting, {"begun": self._num_begun})

    def load_state(self, state: State) -> None:
        """Continue from ``state``, with other agents if need be; ValueError if spaces or memory differ."""
        if why := self.unlike(state):
            raise ValueError(f"the state of {self.name!r} does not fit: {why}")
        arrays: dict[str, Any] = {name: np.array(value) for name, value in state.arrays.items()}
        self._waiting = {name: arrays[f"waiting/{name}"] for name in self._waiting}
        self._set_rows(arrays)
        self._num_begun = state.meta["begun"]

    def unlike(self, state: State) -> str:
        """Return how spaces or memory of the state's agents differ, as text; empty if they do not."""
        before, now = kinds(state), kinds(self.state())
        changed = [name for name in sorted(before | now) if before.get(name) != now.get(name)]
        return ", ".join(f"{name} was {before.get(name)} and is {now.get(name)}" for name in changed)
