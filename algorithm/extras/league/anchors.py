"""Opponents in evaluations of self-play: random actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from typing_extensions import override

from algorithm.core.data import ActorOutput, Array, Bool, Float
from algorithm.core.spec import AgentSpec
from algorithm.extras.league.season import GameByGame, Season


class UniformPolicy:
    """Policy whose actions are uniformly random among those that are allowed."""

    stored_carry_shape: tuple[int, ...] = (0,)

    def __init__(self, spec: AgentSpec, rng: np.random.Generator) -> None:
        self._spec, self._rng = spec.action, rng

    def initial_carry(self, n: int) -> Float:
        """Return no memory, [n, 0]."""
        return np.zeros((n, 0), np.float32)

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Return random actions; see :class:`ActorOutput`."""
        action, z, logp = self._spec.random(self._rng, action_mask)
        return ActorOutput(action=action, z=z, behaviour_logp=logp, carry=carry)


class RandomOpponents(GameByGame):
    """Games of evaluations: against random actions, which each evaluation draws anew, for each team in turn.

    Ratings of a season drift, since each is relative to the others; scores against random actions do not.
    """

    def __init__(self, season: Season, specs: Mapping[str, AgentSpec], seed: int) -> None:
        super().__init__({})
        self._season, self._specs, self._seed = season, specs, seed

    @override
    def begin(self) -> None:
        super().begin()
        self.policies = {
            name: UniformPolicy(spec, np.random.default_rng(self._seed)) for name, spec in self._specs.items()
        }

    @override
    def rate(self, behaviour: str, opponents: Sequence[str], score: float) -> dict[str, float]:
        super().rate(behaviour, opponents, score)
        return {"score_vs_random": score, "elo": self._season.ratings[behaviour]}

    @override
    def end_game(self, score: float) -> None:
        self._next_team()
