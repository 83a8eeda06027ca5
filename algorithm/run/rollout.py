"""Agents act in environments; every transition goes to its agent, every finished episode is reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from algorithm.data import Array, Bool, Float, Int, Segment
from algorithm.env.base import Observation, StepResult, VecEnv
from algorithm.sac.actor import ActorOutput
from algorithm.spec import AgentSpec


@dataclass(frozen=True)
class Episode:
    """A finished episode of one agent."""

    behaviour: str
    agent: int
    total: float  # undiscounted return
    length: int


class Player(Protocol):
    """Who acts for the agents of one behaviour."""

    def initial_carry(self, n: int) -> Float:
        """The carry of n agents at their episodes' start, [n, *C]."""
        ...

    def act(self, obs: Mapping[str, Array], prev_action: Float, carry: Float) -> ActorOutput:
        """Actions of N agents."""
        ...


class Recorder(Protocol):
    """Who is told what came of it."""

    def add(self, segment: Segment) -> None:
        """A transition of one agent."""
        ...

    def close(self, stream: int) -> None:
        """The agent's unfinished episode ends here, as truncated."""
        ...


class _Group:
    """The agents of one behaviour between two steps. Row i of every array belongs to agent ``ids[i]``."""

    def __init__(
        self, name: str, spec: AgentSpec, player: Player, recorder: Recorder | None, first: Observation
    ) -> None:
        self.name, self.player, self.recorder = name, player, recorder
        self.ids: Int = first.ids
        n = len(first.ids)
        self.obs, self.action_mask = dict(first.obs), first.action_mask
        self.prev_action = spec.action.padding(n)
        self.carry: Float = player.initial_carry(n)
        self.step = np.zeros(n, np.int64)
        self.total = np.zeros(n, np.float64)
        self.acted: ActorOutput | None = None

    def act(self) -> Float:
        """Flat actions [N, A]."""
        self.acted = self.player.act(self.obs, self.prev_action, self.carry)
        return self.acted.action

    def record(self, result: StepResult, length_limit: int) -> tuple[list[Episode], list[int]]:
        """Hand the step's transitions to the player and go on.

        Returns finished episodes, and the agents that reached ``length_limit`` and need a reset.
        """
        if not np.array_equal(result.ids, self.ids):
            raise ValueError(f"the agents of {self.name!r} changed from {self.ids} to {result.ids}")
        ended = result.terminated | result.truncated
        self.step += 1
        self.total += result.reward
        over_limit = ~ended & (self.step == length_limit)
        if self.recorder:
            self._store(self.recorder, result, ended, result.truncated | over_limit)
        finished = np.flatnonzero(ended | over_limit)
        episodes = [
            Episode(self.name, int(self.ids[i]), float(self.total[i]), int(self.step[i])) for i in finished
        ]
        assert self.acted is not None
        self.obs, self.action_mask = dict(result.obs), result.action_mask
        self.prev_action, self.carry = self.acted.action, self.acted.carry
        self._begin(finished)
        return episodes, self.ids[over_limit].tolist()

    def _store(self, recorder: Recorder, result: StepResult, ended: Bool, truncated: Bool) -> None:
        acted = self.acted
        assert acted is not None
        for i, stream in enumerate(self.ids.tolist()):
            after = result.final if ended[i] and result.final else result
            one = slice(i, i + 1)
            recorder.add(
                Segment(
                    stream=stream,
                    start_step=int(self.step[i]) - 1,
                    obs={name: np.stack((self.obs[name][i], after.obs[name][i])) for name in self.obs},
                    action_mask=np.stack((self.action_mask[i], after.action_mask[i])),
                    carry=np.stack((self.carry[i], acted.carry[i])),
                    action=acted.action[one],
                    z=acted.z[one],
                    behaviour_logp=acted.behaviour_logp[one],
                    reward=result.reward[one],
                    terminated=result.terminated[one],
                    truncated=truncated[one],
                )
            )

    def restart(self, agents: list[int], first: Observation) -> None:
        """Agents that were reset from outside begin a new episode with ``first``."""
        rows = np.flatnonzero(np.isin(self.ids, agents))
        for name, value in first.obs.items():
            self.obs[name] = self.obs[name].copy()
            self.obs[name][rows] = value
        self.action_mask = self.action_mask.copy()
        self.action_mask[rows] = first.action_mask
        self._begin(rows)

    def _begin(self, rows: Int) -> None:
        if len(rows) == 0:
            return
        self.prev_action, self.carry = self.prev_action.copy(), self.carry.copy()
        self.prev_action[rows] = 0.0
        self.carry[rows] = self.player.initial_carry(len(rows))
        self.step[rows] = 0
        self.total[rows] = 0.0


class Rollout:
    """Steps environments with a player per behaviour, from episode 0 on.

    recorders:    who stores the transitions, per behaviour; none where nothing is kept
    length_limit: an episode is truncated after so many steps; −1 for no limit
    """

    def __init__(
        self,
        env: VecEnv,
        players: Mapping[str, Player],
        recorders: Mapping[str, Recorder] | None = None,
        *,
        length_limit: int = -1,
    ) -> None:
        self._env = env
        self._length_limit = length_limit
        recorders = recorders or {}
        self._groups = {
            name: _Group(name, env.specs[name], players[name], recorders.get(name), first)
            for name, first in env.reset(episode=0).items()
        }

    def step(self) -> list[Episode]:
        """One step of every environment. Returns the episodes that ended with it."""
        results = self._env.step({name: group.act() for name, group in self._groups.items()})
        episodes: list[Episode] = []
        for name, result in results.items():
            ended, over_limit = self._groups[name].record(result, self._length_limit)
            episodes += ended
            if over_limit:
                self._reset(over_limit)
        return episodes

    def truncate(self) -> None:
        """End every unfinished episode as truncated and begin anew; such an episode is not reported."""
        unfinished: set[int] = set()
        for group in self._groups.values():
            agents = group.ids[group.step > 0].tolist()
            if group.recorder:
                for stream in agents:
                    group.recorder.close(stream)
            unfinished |= set(agents)
        if unfinished:
            self._reset(sorted(unfinished))

    @property
    def agents(self) -> set[tuple[str, int]]:
        """(behaviour, id) of every agent."""
        return {(name, int(i)) for name, group in self._groups.items() for i in group.ids}

    def _reset(self, agents: list[int]) -> None:
        for name, first in self._env.reset(agents).items():
            self._groups[name].restart(agents, first)
