"""Agents act in environments; every transition goes to its agent, every finished episode is reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from algorithm.data import Array, Bool, Float, Int, Segment
from algorithm.env.base import Observation, StepResult, VecEnv
from algorithm.errors import NumericalError
from algorithm.run.timing import Stopwatch
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

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Actions of N agents, among those that ``action_mask`` [N, ΣN] allows."""
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
        self._nobody: Bool = np.zeros(n, np.bool_)

    def act(self) -> Float:
        """Flat actions [N, A]."""
        self.acted = self.player.act(self.obs, self.prev_action, self.carry, self.action_mask)
        return self.acted.action

    def record(self, result: StepResult, length_limit: int) -> tuple[list[Episode], list[int]]:
        """Hand the step's transitions to the recorder and go on.

        Returns finished episodes, and the agents that reached ``length_limit`` and need a reset.
        """
        acted = self.acted
        assert acted is not None
        if result.ids is not self.ids and not np.array_equal(result.ids, self.ids):
            raise ValueError(f"the agents of {self.name!r} changed from {self.ids} to {result.ids}")
        self._refuse_non_finite(result, acted)
        skipped = self._nobody if result.skipped is None else result.skipped
        lost = skipped.nonzero()[0]
        if len(lost):
            self.close(lost)
        ended = result.terminated | result.truncated
        self.step += ~skipped
        self.total += result.reward
        over_limit = (self.step == length_limit) & ~ended
        if self.recorder:
            after = _seen_after(result, ended)
            self._store(self.recorder, (~skipped).nonzero()[0], acted, result, after, over_limit)
        self.obs, self.action_mask = dict(result.obs), result.action_mask
        self.prev_action, self.carry = acted.action, acted.carry
        finished = (ended | over_limit).nonzero()[0]
        episodes = [
            Episode(self.name, int(self.ids[i]), float(self.total[i]), int(self.step[i])) for i in finished
        ]
        self._begin(finished)
        self._begin(lost)
        return episodes, self.ids[over_limit].tolist()

    def _refuse_non_finite(self, result: StepResult, acted: ActorOutput) -> None:
        """NaN and infinity are caught where they enter; in the replay they would be met much later."""
        self._check("reward", result.reward, acted)
        for name, value in result.obs.items():
            self._check(f"observation {name!r}", value, acted)
        if result.final:
            for name, value in result.final.obs.items():
                self._check(f"observation {name!r}", value, acted, among=result.terminated | result.truncated)

    def _check(self, what: str, value: Array, acted: ActorOutput, among: Bool | None = None) -> None:
        if value.dtype.kind != "f" or np.isfinite(value).all():
            return
        bad = ~np.isfinite(value)
        if among is not None:
            bad[~among] = False
        if bad.any():
            raise self._not_finite(what, value, bad, acted)

    def _not_finite(self, what: str, value: Array, bad: Bool, acted: ActorOutput) -> NumericalError:
        place = tuple(np.argwhere(bad)[0].tolist())
        i = place[0]
        action = ", ".join(f"{part:.4g}" for part in acted.action[i])
        return NumericalError(
            "the environment returned a number that is not finite",
            where=f"{what}{list(place[1:]) or ''} of {self.name!r} agent {self.ids[i]}, "
            f"step {self.step[i] + 1} of its episode, after action [{action}]",
            why=f"it is {value[place]}",
            fix="mend the environment; a wrapper may clip its numbers (base_config.wrappers)",
        )

    def close(self, rows: Int) -> None:
        """End the unfinished episodes among ``rows`` as truncated where they are."""
        if self.recorder:
            for stream in self.ids[rows[self.step[rows] > 0]].tolist():  # others have stored nothing yet
                self.recorder.close(stream)

    def _store(
        self,
        recorder: Recorder,
        rows: Int,
        acted: ActorOutput,
        result: StepResult,
        after: Observation,
        over_limit: Bool,
    ) -> None:
        obs = {name: _pairs(value, after.obs[name]) for name, value in self.obs.items()}
        mask, carry = _pairs(self.action_mask, after.action_mask), _pairs(self.carry, acted.carry)
        truncated = result.truncated | over_limit
        streams, start_steps = self.ids.tolist(), (self.step - 1).tolist()
        for i in rows.tolist():
            one = slice(i, i + 1)
            recorder.add(
                Segment(
                    stream=streams[i],
                    start_step=start_steps[i],
                    obs={name: value[i] for name, value in obs.items()},
                    action_mask=mask[i],
                    carry=carry[i],
                    action=acted.action[one],
                    z=acted.z[one],
                    behaviour_logp=acted.behaviour_logp[one],
                    reward=result.reward[one],
                    terminated=result.terminated[one],
                    truncated=truncated[one],
                )
            )

    def restart(self, agents: list[int], first: Observation) -> None:
        """Agents that were reset from outside begin an episode with ``first``; open ones are truncated."""
        rows = np.flatnonzero(np.isin(self.ids, agents))
        self.close(rows)
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


def _pairs(now: Array, after: Array) -> Array:
    """Two observations of each agent, [N, 2, ...]."""
    return np.concatenate((now[:, None], after[:, None]), axis=1)


def _seen_after(result: StepResult, ended: Bool) -> Observation:
    """What each action led to: the final observation where the episode ended, else the one to act on."""
    final = result.final
    if final is None:
        return result
    obs = {name: value.copy() for name, value in result.obs.items()}
    for name, value in obs.items():
        value[ended] = final.obs[name][ended]
    mask = result.action_mask.copy()
    mask[ended] = final.action_mask[ended]
    return Observation(ids=result.ids, obs=obs, action_mask=mask)


class Rollout:
    """Steps environments with a player per behaviour, from episode 0 on.

    recorders:    who stores the transitions, per behaviour; none where nothing is kept
    num_envs:     environments among which the agents are spread evenly; by default each agent of the first
                  behaviour has its own
    length_limit: an episode is truncated after so many steps; −1 for no limit
    watch:        told when acting, stepping and storing end

    ``steps`` counts environment steps: in a step of N environments N, less those that took none.
    """

    def __init__(
        self,
        env: VecEnv,
        players: Mapping[str, Player],
        recorders: Mapping[str, Recorder] | None = None,
        *,
        num_envs: int | None = None,
        length_limit: int = -1,
        watch: Stopwatch | None = None,
    ) -> None:
        self._env = env
        self._length_limit = length_limit
        self._watch = watch or Stopwatch()
        recorders = recorders or {}
        self._groups = {
            name: _Group(name, env.specs[name], players[name], recorders.get(name), first)
            for name, first in env.reset(episode=0).items()
        }
        self.steps = 0
        self._counted, group = next(iter(self._groups.items()))
        self._num_agents = len(group.ids)
        self._num_envs = num_envs or self._num_agents

    def step(self) -> list[Episode]:
        """One step of every environment. Returns the episodes that ended with it."""
        actions = {name: group.act() for name, group in self._groups.items()}
        self._watch.lap("act")
        results = self._env.step(actions)
        self._watch.lap("step")
        episodes: list[Episode] = []
        over_limit: set[int] = set()
        for name, result in results.items():
            ended, over = self._groups[name].record(result, self._length_limit)
            episodes += ended
            over_limit.update(over)
        if over_limit:  # after all have recorded: an environment's reset is one for all of its agents
            self._reset(sorted(over_limit))
        self.steps += self._num_taken(results[self._counted])
        self._watch.lap("store")
        return episodes

    def truncate(self) -> None:
        """End every unfinished episode as truncated and begin anew; such an episode is not reported."""
        unfinished = {int(i) for group in self._groups.values() for i in group.ids[group.step > 0]}
        if unfinished:
            self._reset(sorted(unfinished))

    @property
    def agents(self) -> set[tuple[str, int]]:
        """(behaviour, id) of every agent."""
        return {(name, int(i)) for name, group in self._groups.items() for i in group.ids}

    def _reset(self, agents: list[int]) -> None:
        self._watch.lap("store")
        started = self._env.reset(agents)
        self._watch.lap("step")
        for name, first in started.items():
            self._groups[name].restart(agents, first)

    def _num_taken(self, result: StepResult) -> int:
        """Environments that took the step; where one fails, all of its agents are skipped."""
        if result.skipped is None:
            return self._num_envs
        taken = self._num_agents - int(np.count_nonzero(result.skipped))
        return self._num_envs * taken // self._num_agents
