"""Environments in which one team is shown, while other policies act for the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from algorithm.core.data import State
from algorithm.core.steps import Bool, Float, Int
from algorithm.env.base import Executed, Observation, Picture, ResetResult, StepResult, VecEnv
from algorithm.extras.league.season import Opponents
from algorithm.run.experience.agent_processor import AgentProcessor
from algorithm.run.experience.rows import NO_IDS, places

Seen = TypeVar("Seen", bound=Observation)


class SelfPlayEnv(VecEnv):
    """Environments that show the agents of one team; those of other teams act by ``opponents``.

    When another team's turn to learn comes, its agents appear, and those of the former team vanish.
    """

    def __init__(self, env: VecEnv, opponents: Opponents) -> None:
        self._env, self._opponents = env, opponents
        self.specs, self.time_limit, self.fps = env.specs, env.time_limit, env.fps
        self.render_modes, self.arrangement = env.render_modes, env.arrangement
        self._clear()

    def _clear(self) -> None:
        self._others: dict[str, AgentProcessor] = {}
        self._rows: dict[str, Int] = {}  # ids of the agents that act next, in the environment's order
        self._teams: dict[int, int] = {}  # id → team, of all agents that are there
        self._team = 0  # of the agents that were shown last
        self._returns: dict[int, float] = {}  # id → return so far, of its agents
        self._rated: set[int] = set()  # those whose game began with the present opponents
        self._infos: dict[int, dict[str, float]] = {}  # of the games that the last step ended

    @override
    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, ResetResult]:
        if episode is None:
            return self._started(self._env.reset(indices))
        self._clear()
        self._opponents.begin()
        results = self._env.reset(indices, episode=episode)
        self._meet(results)
        self._team = self._opponents.team
        return self._started(results)

    @override
    def drop(self, agents: Collection[int]) -> dict[str, ResetResult]:
        return self._started(self._env.drop(agents))

    def _started(self, results: Mapping[str, ResetResult]) -> dict[str, ResetResult]:
        """Begin the episodes of all agents; return those of the learning team."""
        self._meet(results)
        self.masked = self._env.masked
        shown = {}
        for name, first in results.items():
            removed = NO_IDS if first.removed is None else first.removed
            learns = self._of_team(first.ids)
            shown[name], others = _rows(first, learns), _rows(first, ~learns)
            if name in self._others:
                self._others[name].restart((), others)
            else:
                policy = self._opponents.policies[name]
                self._others[name] = AgentProcessor(name, self.specs[name], policy, None, others)
            rows = self._rows.get(name, NO_IDS)
            stay = rows[~np.isin(rows, removed)]
            self._rows[name] = np.concatenate((stay, first.ids[~np.isin(first.ids, stay)]))
            self._forget(removed.tolist())
            self._begin_games(shown[name].ids.tolist())
        return shown

    @override
    def step(self, actions: Mapping[str, Float]) -> dict[str, StepResult]:
        results = self._env.step({name: self._all_actions(name, actions[name]) for name in self._rows})
        self.masked = self._env.masked
        former, self._team = self._team, self._opponents.team
        self._meet(results)
        leaving, coming = NO_IDS, NO_IDS
        if self._team != former:
            leaving, coming = self._members(former), self._members(self._team)
            self._returns = {}
        shown = {}
        for name, result in results.items():
            learns = self._of_team(result.ids)
            shown[name] = _less(_rows(result, learns), leaving)
            self._others[name].record(_less(_rows(result, ~learns), coming), -1)
            self._rows[name] = result.ids if result.left is None else result.ids[~result.left]
        self._play_on(shown)
        for result in results.values():
            left = NO_IDS if result.left is None else result.ids[result.left]
            gone = NO_IDS if result.vanished is None else result.vanished
            self._forget([*left.tolist(), *gone.tolist()])
        return shown

    def _all_actions(self, name: str, learned: Float) -> Float:
        """Return the actions of all agents of a behaviour, from those of the learning team."""
        ids, others = self._rows[name], self._others[name]
        learns = self._of_team(ids)
        flat = np.empty((len(ids), self.specs[name].action.size), np.float32)
        flat[learns], flat[~learns] = learned, others.act()[places(others.ids, ids[~learns])]
        return flat

    def _play_on(self, shown: Mapping[str, StepResult]) -> None:
        """Rate the games that have ended, and let the opponents change for those that begin."""
        opponents = [name for name, others in self._others.items() if len(others.present)]
        self._infos, begun, steps = {}, [], dict[str, int]()
        for name, result in shown.items():
            taken = self._took_a_step(result)
            steps[name] = int(taken.sum())
            ends = taken & (result.terminated | result.truncated)
            for agent, reward, counts, over in zip(
                result.ids.tolist(), result.reward.tolist(), taken, ends, strict=True
            ):
                self._returns[agent] = self._returns.get(agent, 0.0) + (reward if counts else 0.0)
                if over and agent in self._rated:
                    score = float(np.sign(self._returns[agent]) + 1.0) / 2.0
                    self._infos[agent] = self._opponents.rate(name, opponents, score)
                if over or not counts:
                    begun.append(agent)
        if self._opponents.advance(steps):
            self._rated.clear()
        self._begin_games(begun)

    def _took_a_step(self, result: StepResult) -> Bool:
        """Return which agents [N] acted, and did not appear or fail with the result."""
        known = np.isin(result.ids, list(self._returns))
        return known if result.skipped is None else known & ~result.skipped

    def _begin_games(self, agents: Iterable[int]) -> None:
        for agent in agents:
            self._returns[agent] = 0.0
            self._rated.add(agent)

    def _forget(self, agents: Iterable[int]) -> None:
        for agent in agents:
            self._teams.pop(agent, None)
            self._returns.pop(agent, None)
            self._rated.discard(agent)

    def _meet(self, results: Mapping[str, Observation]) -> None:
        """Take note of the teams of agents that are new."""
        for result in results.values():
            for agent in result.ids.tolist():
                if agent not in self._teams:
                    self._teams[agent] = self._env.team_of(agent)
                    self._opponents.meet(self._teams[agent])

    def _of_team(self, ids: Int) -> Bool:
        """Return which of ``ids`` [N] are in the team that is shown."""
        return np.array([self._teams[agent] == self._team for agent in ids.tolist()], np.bool_)

    def _members(self, team: int) -> Int:
        """Return the ids of all agents of a team."""
        return np.array([agent for agent, each in self._teams.items() if each == team], np.int64)

    @override
    def state(self) -> State:
        meta = {
            "team": self._team,
            "teams": list(self._teams.items()),
            "returns": list(self._returns.items()),
            "rated": sorted(self._rated),
            "behaviours": list(self._rows),
        }
        rows = {f"rows/{k}": ids for k, ids in enumerate(self._rows.values())}
        others = {str(k): each.state() for k, each in enumerate(self._others.values())}
        return State.joined(
            {
                "own": State(rows, meta),
                "others": State.joined(others),
                "opponents": self._opponents.state(),
                "env": self._env.state(),
            }
        )

    @override
    def resume(self, state: State) -> Mapping[int, str]:
        self._opponents.load_state(state.part("opponents"))
        lost = self._env.resume(state.part("env"))
        environments = self._env.environments_of
        if environments(list(lost)) == environments(list(self._teams)):
            self._team = self._opponents.team
            return lost  # no episode goes on, so the reset before this call is the state
        own, others = state.part("own"), state.part("others")
        self._team = own.meta["team"]
        self._teams, self._returns = dict(own.meta["teams"]), dict(own.meta["returns"])
        self._rated = set(own.meta["rated"])
        for k, name in enumerate(own.meta["behaviours"]):
            self._rows[name] = own.arrays[f"rows/{k}"].astype(np.int64)
            self._others[name].load_state(others.part(str(k)))
        return lost

    @override
    def environments_of(self, agents: Collection[int]) -> list[int]:
        return self._env.environments_of(agents)

    @override
    def team_of(self, agent: int) -> int:
        return self._env.team_of(agent)

    @override
    def episode_of(self, agent: int, *, begins: bool) -> str:
        return self._env.episode_of(agent, begins=begins)

    @override
    def infos(self, agent: int) -> dict[str, float]:
        return {**self._env.infos(agent), **self._infos.get(agent, {})}

    @override
    def renew_parameters(self, lessons: Mapping[str, str]) -> None:
        self._env.renew_parameters(lessons)

    @override
    def must_pause(self) -> bool:
        return self._env.must_pause()

    @override
    def metrics(self) -> dict[str, float]:
        return self._env.metrics()

    @override
    def render(self) -> Picture | None:
        return self._env.render()

    @override
    def close(self) -> None:
        self._env.close()


def _less(result: StepResult, gone: Int) -> StepResult:
    """Return the result in which the agents ``gone`` have vanished as well."""
    if not len(gone):
        return result
    vanished = gone if result.vanished is None else np.union1d(result.vanished, gone)
    return replace(result, vanished=vanished)


def _rows(seen: Seen, which: Bool) -> Seen:
    """Return the rows of ``seen`` where ``which`` [N] is true, and what has no rows as it is."""
    if which.all():
        return seen
    return replace(
        seen,
        **{
            each.name: _picked(getattr(seen, each.name), which)
            for each in fields(seen)
            if each.name not in ("removed", "vanished")
        },
    )


def _picked(value: Any, which: Bool) -> Any:  # noqa: ANN401 - a field of an observation or a result
    if isinstance(value, dict):
        return {name: rows[which] for name, rows in value.items()}
    if isinstance(value, Observation):
        return _rows(value, which)
    if isinstance(value, Executed):
        return Executed(value.action[which], value.replaced[which], value.by_person[which])
    return None if value is None else value[which]
