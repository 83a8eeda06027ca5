"""Opponents of self-play: past policies and their ratings in training, fixed ones in evaluations."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.agents.base import Agent
from algorithm.agents.roles import Acting, Policy
from algorithm.config.extras_config import SelfPlayConfig
from algorithm.core.data import State
from algorithm.core.errors import EnvError

Weights = Mapping[str, Tensor]
"""``part/name`` → tensor of the modules that act."""

K = 16.0
"""Points that a game moves a rating by at most (Elo 1978); 32 is usual for people, who play fewer games."""


def weights_of(parts: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Return a copy of the modules' tensors, on the CPU."""
    return {
        f"{part}/{name}": tensor.detach().to("cpu", copy=True)
        for part, module in parts.items()
        for name, tensor in module.state_dict().items()
    }


def load_weights(weights: Weights, parts: Mapping[str, nn.Module]) -> None:
    """Load a result of :func:`weights_of` into modules of the same shapes."""
    for part, module in parts.items():
        prefix = f"{part}/"
        module.load_state_dict(
            {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        )


def expected_score(rating: float, opponent: float) -> float:
    """Return the score in [0, 1] that Elo's model expects: 1 / (1 + 10^((opponent − rating) / 400))."""
    return 1.0 / (1.0 + math.pow(10.0, (opponent - rating) / 400.0))


@dataclass(frozen=True)
class PastPolicy:
    """A policy as it was after ``step`` learning steps of its behaviour, with its rating then."""

    step: int
    rating: float
    weights: Weights


class Opponents(ABC):
    """The policies of all teams but one, and that team. Teams are numbered as they first act.

    policies: of the opponents, by behaviour
    """

    def __init__(self, acting: Mapping[str, Acting]) -> None:
        self._acting = acting
        self._teams: list[int] = []
        self.policies: Mapping[str, Policy] = {name: each.policy for name, each in acting.items()}
        self.team = 0

    def meet(self, team: int) -> None:
        """Take note of a team that acts; the first one that does is the learning team."""
        if not self._teams:
            self.team = team
        self._teams = sorted({*self._teams, team})

    def begin(self) -> None:
        """Prepare for games that begin at episode 0."""
        self._teams = []

    @abstractmethod
    def rate(self, behaviour: str, opponents: Sequence[str], score: float) -> dict[str, float]:
        """Take the score of a finished game: 1 for a win, 0 for a defeat, ½ otherwise; return infos on it.

        behaviour: of the agent whose game it was; opponents: behaviours of the agents of other teams
        """

    @abstractmethod
    def advance(self, steps: Mapping[str, int], *, playing: bool) -> bool:
        """Count a step of the environments; return whether the opponents are others now.

        steps: number of transitions of the learning team by behaviour; playing: whether a game goes on
        """

    def cut_off(self) -> None:
        """Take note of a game that was reset before its end."""
        return

    def state(self) -> State:
        """Return the state for a resumed run; empty for evaluations, each of which begins anew."""
        return State()

    def load_state(self, state: State) -> None:
        """Continue from a result of :meth:`state`."""
        return

    def _load(self, behaviour: str, weights: Weights) -> None:
        load_weights(weights, self._acting[behaviour].parts)

    def _next_team(self) -> None:
        """Let the next team play against the others. Raises EnvError if only one has ever acted."""
        if len(self._teams) < 2:
            raise EnvError(
                "a game needs two teams, and only one has acted",
                where=f"team {self.team}",
                why="no agent of another team has asked for an action so far",
                fix="make the environment ask all teams; base_config.pettingzoo_args.teams sets those of "
                "PettingZoo",
            )
        self.team = self._teams[(self._teams.index(self.team) + 1) % len(self._teams)]


class GameByGame(Opponents):
    """Opponents that may change between games, of which one is played at a time; teams have turns."""

    def __init__(self, acting: Mapping[str, Acting]) -> None:
        super().__init__(acting)
        self._scores: list[float] = []  # of the agents that have ended the present game

    @abstractmethod
    def end_game(self, score: float) -> None:
        """Take the mean score of a game, and prepare the next one."""

    @override
    def begin(self) -> None:
        super().begin()
        self._scores = []

    @override
    def rate(self, behaviour: str, opponents: Sequence[str], score: float) -> dict[str, float]:
        self._scores.append(score)
        return {}

    @override
    def advance(self, steps: Mapping[str, int], *, playing: bool) -> bool:
        if playing or not self._scores:
            return False
        scores, self._scores = self._scores, []
        self.end_game(fmean(scores))
        return True

    @override
    def cut_off(self) -> None:
        self._scores = []
        self.end_game(0.5)


class Season(Opponents):
    """Games of training against past policies, with Elo ratings.

    The rating of the policy that learns begins at ``initial_elo`` and moves with each game; a past policy
    keeps the rating that it had. The untrained policy is always among the past ones.

    ratings: of the policies that learn, by behaviour

    agents: that learn; acting: policies of their opponents; rng: draws opponents
    """

    def __init__(
        self,
        config: SelfPlayConfig,
        agents: Mapping[str, Agent],
        acting: Mapping[str, Acting],
        rng: np.random.Generator,
    ) -> None:
        super().__init__(acting)
        self._config, self._agents, self._rng = config, agents, rng
        self.ratings = dict.fromkeys(agents, config.initial_elo)
        self._steps = dict.fromkeys(agents, 0)
        self.first = {name: self._now(name) for name in agents}
        self._past: dict[str, list[PastPolicy]] = {name: [] for name in agents}
        self._current = dict(self.first)  # the opponents
        for name, policy in self._current.items():
            self._load(name, policy.weights)

    @override
    def rate(self, behaviour: str, opponents: Sequence[str], score: float) -> dict[str, float]:
        against = float(np.mean([self._current[name].rating for name in opponents or [behaviour]]))
        self.ratings[behaviour] += K * (score - expected_score(self.ratings[behaviour], against))
        return {"elo": self.ratings[behaviour]}

    @override
    def advance(self, steps: Mapping[str, int], *, playing: bool) -> bool:
        before = sum(self._steps.values())
        for name, taken in steps.items():
            self._steps[name] += taken
            if _passes(self._steps[name] - taken, taken, self._config.save_steps):
                self._past[name] = [*self._past[name], self._now(name)][-self._config.window :]
        total = sum(self._steps.values()) - before
        changed = _passes(before, total, self._config.steps_of_team)
        if changed:
            self._next_team()
        if changed or _passes(before, total, self._config.swap_steps):
            self._swap()
            return True
        return False

    def _now(self, behaviour: str) -> PastPolicy:
        """Return the policy that learns as it is now."""
        parts = self._agents[behaviour].acting_parts()
        return PastPolicy(self._steps[behaviour], self.ratings[behaviour], weights_of(parts))

    def _swap(self) -> None:
        """Draw the opponents: the newest policy, or any past one."""
        for name, past in self._past.items():
            newest = self._rng.random() < self._config.play_against_latest_model_ratio
            pool = [self.first[name], *past]  # without weak opponents it would forget how to beat them
            self._current[name] = self._now(name) if newest else pool[self._rng.integers(len(pool))]
            self._load(name, self._current[name].weights)

    @override
    def state(self) -> State:
        meta = {
            "team": self.team,
            "teams": self._teams,
            "rng": self._rng.bit_generator.state,
            "behaviours": list(self._agents),
            "ratings": list(self.ratings.values()),
            "steps": list(self._steps.values()),
        }
        policies = {
            str(k): State.joined({str(i): _policy_state(policy) for i, policy in enumerate(self._kept(name))})
            for k, name in enumerate(self._agents)
        }
        opponents = {str(k): each.policy.state() for k, each in enumerate(self._acting.values())}
        return State.joined(
            {
                "counts": State(meta=meta),
                "policies": State.joined(policies),
                "opponents": State.joined(opponents),
            }
        )

    @override
    def load_state(self, state: State) -> None:
        counts, policies = state.part("counts").meta, state.part("policies")
        opponents = state.part("opponents")
        self.team, self._teams = counts["team"], list(counts["teams"])
        self._rng.bit_generator.state = counts["rng"]
        for k, name in enumerate(counts["behaviours"]):
            self.ratings[name], self._steps[name] = counts["ratings"][k], counts["steps"][k]
            saved = policies.part(str(k))
            first, current, *past = [_policy_from(saved.part(i)) for i in sorted(saved.meta, key=int)]
            self.first[name], self._current[name] = first, current
            self._past[name] = past[-self._config.window :]
            self._load(name, current.weights)
            self._acting[name].policy.load_state(opponents.part(str(k)))

    def _kept(self, behaviour: str) -> list[PastPolicy]:
        """Return the first policy, the current opponent, and the past ones, oldest first."""
        return [self.first[behaviour], self._current[behaviour], *self._past[behaviour]]


def _passes(before: int, taken: int, every: int) -> bool:
    """Return whether ``taken`` steps after ``before`` reach a multiple of ``every``."""
    return (before + taken) // every > before // every


def _policy_state(policy: PastPolicy) -> State:
    arrays = {name: value.numpy() for name, value in policy.weights.items()}
    return State(arrays, {"step": policy.step, "rating": policy.rating})


def _policy_from(state: State) -> PastPolicy:
    weights = {name: torch.from_numpy(np.array(value)) for name, value in state.arrays.items()}
    return PastPolicy(state.meta["step"], state.meta["rating"], weights)
