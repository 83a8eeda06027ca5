"""A contest of two entrants: games in which one has a team, and the other all the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from statistics import NormalDist

from typing_extensions import override

from algorithm.agents.base import Agent
from algorithm.agents.roles import Policy
from algorithm.core.seeding import stream
from algorithm.core.spec import AgentSpec
from algorithm.env.base import VecEnv
from algorithm.extras.league.anchors import UniformPolicy
from algorithm.extras.league.season import GameByGame
from algorithm.extras.league.teams import SelfPlayEnv
from algorithm.run.evaluation.evaluate import eval_policies, evaluate
from algorithm.run.evaluation.statistics import CONFIDENCE


@dataclass(frozen=True)
class Entrant:
    """A player of games, by its agent for each behaviour; without agents it acts at random."""

    name: str
    agents: Mapping[str, Agent] | None = None

    def policies(self, specs: Mapping[str, AgentSpec], purpose: str, *, greedy: bool) -> Mapping[str, Policy]:
        """Return new policies by behaviour; purpose: name for their random numbers."""
        if self.agents is not None:
            return eval_policies(self.agents, purpose, greedy=greedy)
        return {name: UniformPolicy(spec, stream(0, purpose, name)) for name, spec in specs.items()}


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


class Rivals(GameByGame):
    """The second entrant of a contest; the first one has each team in turn, a game at a time.

    results: mean score of the first entrant's agents in each game
    """

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        super().__init__({})
        self.policies, self.results = policies, list[float]()

    @override
    def end_game(self, score: float) -> None:
        self.results.append(score)
        self._next_team()


@dataclass(frozen=True)
class Contest:
    """Games on one environment, whose teams the entrants have in turn.

    limit:  steps of an agent after which a game counts as drawn; −1 for none
    stop:   ends the games once it returns true
    greedy: policies act by their mode
    """

    env: VecEnv
    limit: int
    _: KW_ONLY
    stop: Callable[[], bool]
    greedy: bool

    def score(self, first: Entrant, second: Entrant, games: int) -> MatchScore | None:
        """Play games; an odd number gets one more. Return their score, None if there was a stop.

        Raises EnvError if only one team ever acts.
        """
        specs, games = self.env.specs, games + games % 2
        rivals = Rivals(second.policies(specs, "match, second", greedy=self.greedy))
        evaluate(
            SelfPlayEnv(self.env, rivals),
            first.policies(specs, "match, first", greedy=self.greedy),
            2**31,  # games are counted instead: team-mates end an episode each
            length_limit=self.limit,
            stop=lambda: self.stop() or len(rivals.results) >= games,
        )
        if self.stop():
            return None
        won, lost = (sum(sign * (score - 0.5) > 0 for score in rivals.results) for sign in (1, -1))
        return MatchScore(first=first.name, second=second.name, won=won, drawn=games - won - lost, lost=lost)
