"""Games of two entrants on one environment: whose agents have the higher return."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist, fmean
from typing import Any

import numpy as np

from algorithm.agents.base import Agent
from algorithm.agents.roles import Policy
from algorithm.core.data import ActorOutput, Array, Bool, Episode, Float, Int
from algorithm.core.errors import UsageError
from algorithm.core.seeding import stream
from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.env.base import VecEnv
from algorithm.nn.process import others_modes
from algorithm.run.evaluation.evaluate import eval_policies
from algorithm.run.evaluation.statistics import CONFIDENCE
from algorithm.run.experience.agent_processor import AgentProcessor

_BY_IDS = ("vanished", "removed")
"""Fields of results that hold ids, and no row for each agent."""

_Policies = Mapping[str, Policy]


class UniformPolicy:
    """Policy whose actions are uniformly random among the legal ones."""

    def __init__(self, spec: ActionSpec, rng: np.random.Generator) -> None:
        self._spec, self._rng = spec, rng

    @property
    def stored_carry_shape(self) -> tuple[int, ...]:
        """Shape of no memory."""
        return (0,)

    def initial_carry(self, n: int) -> Float:
        """Return no memory, [n, 0]."""
        return np.zeros((n, 0), np.float32)

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Return random actions that ``action_mask`` allows."""
        action, z, logp = self._spec.random(self._rng, action_mask)
        return ActorOutput(action=action, z=z, behaviour_logp=logp, carry=carry)


@dataclass(frozen=True)
class Entrant:
    """A player of games, by its agent for each behaviour; without agents it acts at random."""

    name: str
    agents: Mapping[str, Agent] | None = None

    def policies(self, specs: Mapping[str, AgentSpec], purpose: str, *, greedy: bool) -> _Policies:
        """Return new policies by behaviour; purpose: name for their random numbers."""
        if self.agents is not None:
            return eval_policies(self.agents, purpose, greedy=greedy)
        return {name: UniformPolicy(spec.action, stream(0, purpose, name)) for name, spec in specs.items()}


@dataclass(frozen=True, kw_only=True)
class MatchScore:
    """Result of ``games`` between two entrants, by name; ``won`` and ``lost`` by the first."""

    first: str
    second: str
    won: int
    drawn: int
    lost: int

    @property
    def games(self) -> int:
        """Number of games."""
        return self.won + self.drawn + self.lost

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share of games won."""
        n, z = self.games, NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
        share = self.won / n
        middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
        return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)

    @property
    def as_json(self) -> dict[str, object]:
        """Counts and interval, as in ``matches.json``."""
        return vars(self) | {"ci95": self.interval}

    @property
    def text(self) -> str:
        """Shares in percent, with the interval, and the number of games."""
        won, drawn, lost, low, high = (
            f"{100 * share:.0f}"
            for share in (*(k / self.games for k in (self.won, self.drawn, self.lost)), *self.interval)
        )
        return f"won {won} % [{low}, {high}], drawn {drawn} %, lost {lost} %, {self.games} games"


class Contest:
    """Games on one environment, one after the other, whose teams are given to two entrants in turn.

    limit:  steps of an agent after which a game counts as one that does not end
    stop:   called after each game; if it returns true, no other game begins
    greedy: policies act by their mode

    A team's result is the mean return of the episodes of its agents; an entrant's is that of its best team.
    """

    def __init__(self, env: VecEnv, limit: int, *, stop: Callable[[], bool], greedy: bool) -> None:
        self.env = env
        self._limit, self._stop, self._greedy = limit, stop, greedy
        self._place: dict[int, int] = {}  # team -> its place in the order in which teams appear

    def score(self, first: Entrant, second: Entrant, games: int) -> MatchScore | None:
        """Play games, half of them with teams exchanged, from the same starts; an odd number gets one more.

        Return their score, None without a finished game. Raises UsageError if there is one team only, or a
        game does not end.
        """
        results = []
        for turn in (0, 1):
            policies = [
                entrant.policies(self.env.specs, f"match, entrant {k}, turn {turn}", greedy=self._greedy)
                for k, entrant in enumerate((first, second))
            ]
            table = _Seating(self.env, policies, partial(self._sides, turn=turn))
            for _ in range((games + 1) // 2):
                if self._stop():
                    break
                results.append(self._winner(self._game(table), turn))
        if not results:
            return None
        won, drawn, lost = (results.count(result) for result in (1, 0, -1))
        return MatchScore(first=first.name, second=second.name, won=won, drawn=drawn, lost=lost)

    def _sides(self, ids: Int, turn: int) -> Int:
        """Return the entrant, 0 or 1, of each agent [N]."""
        teams = [self.env.team_of(agent) for agent in ids.tolist()]
        places = [self._place.setdefault(team, len(self._place)) for team in teams]
        return (np.array(places, np.int64) + turn) % 2

    def _game(self, table: _Seating) -> Mapping[int, list[float]]:
        """Play until all agents of a game have ended an episode; return the returns of each team.

        A game that ends for one entrant only, such as one in which the environment fails, does not count.
        """
        begun, returns, steps = table.open_episodes, dict[int, list[float]](), 0
        while True:
            for episode in table.step():
                returns.setdefault(self.env.team_of(episode.agent), []).append(episode.total)
            steps += 1
            current = table.open_episodes
            if any(current.get(key) == number for key, number in begun.items()) or not begun:
                begun = current | begun  # agents may come later
            elif len({self._place[team] % 2 for team in returns}) == 2:
                return returns
            elif len(self._place) == 1:
                raise _one_team(self.env)
            else:
                begun, returns = current, {}
            if steps > self._limit * max(1, len(begun)):
                raise _endless(self._limit)

    def _winner(self, returns: Mapping[int, Sequence[float]], turn: int) -> int:
        """Return 1 if the first entrant has won, −1 if it has lost, 0 for equal returns."""
        best = [
            max(fmean(of_team) for team, of_team in returns.items() if (self._place[team] + turn) % 2 == side)
            for side in (0, 1)
        ]
        if math.isclose(*best, rel_tol=1e-6, abs_tol=1e-6):  # sums of float32
            return 0
        return 1 if best[0] > best[1] else -1


class _Seating:
    """Agents of an environment that act by the policies of two entrants, from its first episode on.

    policies: of each entrant, by behaviour
    sides:    (ids [N]) -> their entrants [N]
    """

    def __init__(self, env: VecEnv, policies: Sequence[_Policies], sides: Callable[[Int], Int]) -> None:
        self._env, self._side_of = env, sides
        with others_modes():
            first = env.reset(episode=0)
        self._sides = {name: sides(seen.ids) for name, seen in first.items()}
        self._groups = [
            {
                name: AgentProcessor(
                    name, env.specs[name], acting[name], None, _rows(seen, self._sides[name] == side)
                )
                for name, seen in first.items()
            }
            for side, acting in enumerate(policies)
        ]

    @property
    def open_episodes(self) -> dict[tuple[str, int], int]:
        """(behaviour, id) of every agent -> number of its episode among those of its entrant."""
        groups = [group for of_side in self._groups for group in of_side.values()]
        return {key: number for group in groups for key, number in group.open_episodes.items()}

    def step(self) -> list[Episode]:
        """Take a step; return the episodes that ended with it."""
        actions = {}
        for name, sides in self._sides.items():
            actions[name] = np.zeros((len(sides), self._env.specs[name].action.size), np.float32)
            for side, groups in enumerate(self._groups):
                actions[name][sides == side] = groups[name].act()
        with others_modes():
            results = self._env.step(actions)
        ended = []
        for name, result in results.items():
            sides = self._side_of(result.ids)
            for side, groups in enumerate(self._groups):
                ended += groups[name].record(_rows(result, sides == side), length_limit=-1).episodes
            self._sides[name] = sides if result.left is None else sides[~result.left]
        return ended


def _rows(part: Any, rows: Bool) -> Any:  # noqa: ANN401 - a result, or any part of it
    """Return a part of an environment's result for the agents in ``rows`` [N] alone."""
    if isinstance(part, np.ndarray):
        return part[rows]
    if isinstance(part, dict):
        return {name: _rows(value, rows) for name, value in part.items()}
    if isinstance(part, tuple):
        return type(part)(*(_rows(value, rows) for value in part))
    if part is None:
        return None
    values = {name: _rows(value, rows) for name, value in vars(part).items() if name not in _BY_IDS}
    return replace(part, **values)


def _one_team(env: VecEnv) -> UsageError:
    return UsageError(
        "there is nobody to play against",
        where=f"--play_against, {env.arrangement}",
        why="all agents of the environment are in one team",
        fix="name an environment with two teams; base_config.pettingzoo_args.teams sets those of PettingZoo",
    )


def _endless(limit: int) -> UsageError:
    return UsageError(
        "a game does not end",
        where="--play_against",
        why=f"not all of its agents have ended their episodes within {limit:,} steps",
        fix="limit its length in the environment, such as env_args: {max_cycles: 100}, or raise "
        "eval_config.max_step",
    )
