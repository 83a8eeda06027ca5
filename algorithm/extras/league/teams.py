"""Environments in which one team is shown, while other policies act for the rest."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from algorithm.core.data import State
from algorithm.core.steps import Bool, Float, Int
from algorithm.env.base import Executed, Observation, Picture, ResetResult, StepResult, VecEnv, checked
from algorithm.extras.league.season import Opponents
from algorithm.run.experience.agent_processor import AgentProcessor
from algorithm.run.experience.rows import NO_IDS, places

Seen = TypeVar("Seen", bound=Observation)


class SelfPlayEnv(VecEnv):
    """Environments that show the agents of one team; those of other teams act by ``opponents``.

    When another team's turn to learn comes, it is shown from each agent's next episode on.
    """

    def __init__(self, env: VecEnv, opponents: Opponents) -> None:
        self._env, self._opponents = env, opponents
        self.specs, self.time_limit, self.fps = env.specs, env.time_limit, env.fps
        self.render_modes, self.arrangement = env.render_modes, env.arrangement
        self._clear()

    def _clear(self) -> None:
        self._others: dict[str, AgentProcessor] = {}  # agents that are not shown
        self._rows: dict[str, Int] = {}  # ids of the agents that act next, in the environment's order
        self._order: dict[str, Int] = {}  # those that are shown, in the trainer's order
        self._shown: dict[int, bool] = {}  # id → whether the agent is shown, of all that are there
        self._learning: dict[int, int] = {}  # environment → team that learns in its game
        self._returns: dict[int, float] = {}  # id → return so far, of the agents that are shown
        self._rated: set[int] = set()  # those whose game began with the present opponents
        self._infos: dict[int, dict[str, float]] = {}  # of the games that the last step ended

    @override
    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, ResetResult]:
        if episode is not None:
            self._clear()
            self._opponents.begin()
        elif self._returns:
            self._opponents.cut_off()
        return self._started(checked(self._env, "reset", self._env.reset(indices, episode=episode)))

    @override
    def drop(self, agents: Collection[int]) -> dict[str, ResetResult]:
        return self._started(checked(self._env, "drop", self._env.drop(agents)))

    def _started(self, results: Mapping[str, ResetResult]) -> dict[str, ResetResult]:
        """Begin the episodes of all agents; return those of the learning team."""
        self.masked = self._env.masked
        shown = {}
        for name, first in results.items():
            removed = NO_IDS if first.removed is None else first.removed
            self._forget(removed)
            self._decide(first.ids, first.ids)
            now = self._are_shown(first.ids)
            shown[name] = replace(_rows(first, now), removed=np.union1d(removed, first.ids[~now]))
            others = replace(_rows(first, ~now), removed=np.union1d(removed, first.ids[now]))
            if name in self._others:
                self._others[name].restart((), others)
            else:
                policy = self._opponents.policies[name]
                self._others[name] = AgentProcessor(name, self.specs[name], policy, None, others)
            self._rows[name] = _reset_rows(self._rows.get(name, NO_IDS), first.ids, removed)
            order = self._order.get(name, NO_IDS)
            self._order[name] = _reset_rows(order, shown[name].ids, shown[name].removed)
            self._begin_games(shown[name].ids)
        return shown

    @override
    def step(self, actions: Mapping[str, Float]) -> dict[str, StepResult]:
        taken = {name: self._all_actions(name, actions[name]) for name in self._rows}
        results = checked(self._env, "step", self._env.step(taken))
        self.masked = self._env.masked
        for result in results.values():
            if result.vanished is not None:  # if one of them is in the result, it is another agent
                self._forget(result.vanished)
        self._rate(results)
        shown = {}
        for name, result in results.items():
            known = np.isin(result.ids, list(self._shown))
            before = self._are_shown(result.ids)
            left = np.zeros(len(result.ids), np.bool_) if result.left is None else result.left
            ends = known & (result.terminated | result.truncated)
            begins = (~known | ends) & ~left
            self._decide(result.ids[begins], result.ids[ends])
            now = self._are_shown(result.ids)
            shown[name] = _side(result, known & before, now, left)
            self._others[name].record(_side(result, known & ~before, ~now, left), -1)
            self._begin_games(result.ids[begins & now])
            self._forget(result.ids[left])
            self._rows[name], order = result.ids[~left], shown[name]
            self._order[name] = order.ids if order.left is None else order.ids[~order.left]
        return shown

    def _all_actions(self, name: str, learned: Float) -> Float:
        """Return the actions of all agents of a behaviour, from those of the agents that are shown."""
        ids, others = self._rows[name], self._others[name]
        shown = self._are_shown(ids)
        flat = np.empty((len(ids), self.specs[name].action.size), np.float32)
        flat[shown] = learned[places(self._order[name], ids[shown])]
        flat[~shown] = others.act()[places(others.ids, ids[~shown])]
        return flat

    def _rate(self, results: Mapping[str, StepResult]) -> None:
        """Rate the games that have ended, and let the opponents change for those that begin."""
        opponents = [name for name, others in self._others.items() if len(others.present)]
        self._infos, steps = {}, dict[str, int]()
        for name, result in results.items():
            takes = np.isin(result.ids, list(self._returns))
            if result.skipped is not None:
                self._begin_games(result.ids[takes & result.skipped])
                takes &= ~result.skipped
            steps[name] = int(takes.sum())
            ends = result.terminated | result.truncated
            for row in takes.nonzero()[0]:
                agent = int(result.ids[row])
                self._returns[agent] += float(result.reward[row])
                if ends[row]:
                    self._rate_game(name, agent, opponents)
        if self._opponents.advance(steps, playing=bool(self._returns)):
            self._rated.clear()

    def _rate_game(self, name: str, agent: int, opponents: Sequence[str]) -> None:
        """Rate an agent's game by the sign of its return, unless it is not to be rated or not finite."""
        total = self._returns.pop(agent)
        if agent in self._rated and math.isfinite(total):
            score = float(np.sign(total) + 1.0) / 2.0
            self._infos[agent] = self._opponents.rate(name, opponents, score)

    def _decide(self, ids: Int, new: Int) -> None:
        """Show those of the agents ``ids``, whose episodes begin, that are of the team that learns.

        new: agents in whose environments other games begin; agents that appear in a game belong to it
        """
        for agent in ids.tolist():
            self._opponents.meet(self._env.team_of(agent))
        for environment in self._env.environments_of(new.tolist()):
            self._learning[environment] = self._opponents.team
        for agent in ids.tolist():
            (environment,) = self._env.environments_of([agent])
            learning = self._learning.setdefault(environment, self._opponents.team)
            self._shown[agent] = self._env.team_of(agent) == learning
            self._returns.pop(agent, None)
            self._rated.discard(agent)

    def _are_shown(self, ids: Int) -> Bool:
        """Return which of ``ids`` [N] are shown."""
        return np.array([self._shown.get(agent, False) for agent in ids.tolist()], np.bool_)

    def _begin_games(self, ids: Int) -> None:
        for agent in ids.tolist():
            self._returns[agent] = 0.0
            self._rated.add(agent)

    def _forget(self, ids: Int) -> None:
        for agent in ids.tolist():
            self._shown.pop(agent, None)
            self._returns.pop(agent, None)
            self._rated.discard(agent)

    @override
    def state(self) -> State:
        meta = {
            "shown": list(self._shown.items()),
            "learning": list(self._learning.items()),
            "returns": list(self._returns.items()),
            "rated": sorted(self._rated),
            "behaviours": list(self._rows),
        }
        rows = {f"rows/{k}": ids for k, ids in enumerate(self._rows.values())}
        order = {f"order/{k}": ids for k, ids in enumerate(self._order.values())}
        others = {str(k): each.state() for k, each in enumerate(self._others.values())}
        return State.joined(
            {
                "games": State(rows | order, meta),
                "others": State.joined(others),
                "opponents": self._opponents.state(),
                "env": checked(self._env, "state", self._env.state()),
            }
        )

    @override
    def resume(self, state: State) -> Mapping[int, str]:
        self._opponents.load_state(state.part("opponents"))
        lost = checked(self._env, "resume", self._env.resume(state.part("env")))
        environments = self._env.environments_of
        if environments(list(lost)) == environments(list(self._shown)):
            return lost  # no episode goes on, so the reset before this call is the state
        games, others = state.part("games"), state.part("others")
        self._shown, self._returns = dict(games.meta["shown"]), dict(games.meta["returns"])
        self._learning, self._rated = dict(games.meta["learning"]), set(games.meta["rated"])
        for k, name in enumerate(games.meta["behaviours"]):
            self._rows[name] = games.arrays[f"rows/{k}"].astype(np.int64)
            self._order[name] = games.arrays[f"order/{k}"].astype(np.int64)
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
        return {**checked(self._env, "infos", self._env.infos(agent)), **self._infos.get(agent, {})}

    @override
    def renew_parameters(self, lessons: Mapping[str, str]) -> None:
        self._env.renew_parameters(lessons)

    @override
    def must_pause(self) -> bool:
        return self._env.must_pause()

    @override
    def metrics(self) -> dict[str, float]:
        return checked(self._env, "metrics", self._env.metrics())

    @override
    def render(self) -> Picture | None:
        return self._env.render()

    @override
    def close(self) -> None:
        self._env.close()


def _reset_rows(rows: Int, begun: Int, removed: Int | None) -> Int:
    """Return the order of agents after a reset: without those removed, and new ones behind the others."""
    stay = rows if removed is None else rows[~np.isin(rows, removed)]
    return np.concatenate((stay, begun[~np.isin(begun, stay)]))


def _side(result: StepResult, before: Bool, after: Bool, left: Bool) -> StepResult:
    """Return the rows of one side: its agents ``before`` the result [N], and those ``after`` it [N].

    left: agents [N] that are gone, whatever ``after`` is
    """
    here = before | (after & ~left)
    leaves = (left | ~after) & before
    chosen = _rows(result, here)
    return replace(chosen, left=leaves[here]) if leaves.any() else replace(chosen, left=None)


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
