"""Opponents in evaluations of self-play: always random actions and the untrained policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from typing_extensions import override

from algorithm.agents.roles import Acting, ExploringPolicy, Policy
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


class AnchorPolicy:
    """Policy of an opponent in evaluations: the untrained one, or random actions while ``at_random``."""

    def __init__(self, spec: AgentSpec, policy: ExploringPolicy, seed: int) -> None:
        self._spec, self._policy, self._seed = spec, policy, seed
        self._fresh, self.stored_carry_shape = policy.state(), policy.stored_carry_shape
        self.begin()

    def begin(self) -> None:
        """Begin the random numbers again, so that every evaluation draws the same."""
        self._policy.load_state(self._fresh)
        self.at_random = True
        self._uniform = UniformPolicy(self._spec, np.random.default_rng(self._seed))

    def initial_carry(self, n: int) -> Float:
        """Return the carry of n agents at the start of their episodes, [n, *C]."""
        return self._policy.initial_carry(n)

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Return actions of N agents; see :class:`ActorOutput`."""
        acting: Policy = self._uniform if self.at_random else self._policy
        return acting.act(obs, prev_action, carry, action_mask)


class Anchors(GameByGame):
    """Games of evaluations: against random actions and against the untrained policy in turn, for each team.

    Ratings of a season drift, since each is relative to the others; scores against these opponents do not.
    """

    def __init__(
        self, season: Season, acting: Mapping[str, Acting], specs: Mapping[str, AgentSpec], seed: int
    ) -> None:
        super().__init__(acting)
        self._season, self._games = season, 0
        self._anchors = {name: AnchorPolicy(specs[name], each.policy, seed) for name, each in acting.items()}
        self.policies = self._anchors

    @override
    def begin(self) -> None:
        super().begin()
        self._games = 0
        for name, anchor in self._anchors.items():
            self._load(name, self._season.first[name].weights)
            anchor.begin()

    @override
    def rate(self, behaviour: str, opponents: Sequence[str], score: float) -> dict[str, float]:
        against = "first" if self._games % 2 else "random"
        super().rate(behaviour, opponents, score)
        return {f"score_vs_{against}": score, "elo": self._season.ratings[behaviour]}

    @override
    def end_game(self, score: float) -> None:
        self._games += 1
        for anchor in self._anchors.values():
            anchor.at_random = self._games % 2 == 0
        if self._games % 2 == 0:
            self._next_team()
