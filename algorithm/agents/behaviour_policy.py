"""Policies that collect experience: one without memory, and those that begin with random actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from algorithm.actions.actor import Actor
from algorithm.agents.roles import ActingInputs, AgentInputs
from algorithm.core.data import ActorOutput, Array, Bool, Float, State
from algorithm.core.seeding import stream
from algorithm.core.spec import Z_LIMIT, AgentSpec

AT_BOUND = 0.5
"""Share of the numbers of random continuous actions that are at a bound, if actions are held."""

_CERTAIN = np.float32(1e6)
"""Stored log-density of a continuous action that had a probability mass: π/μ is 0 by this finite number."""


class MemorylessPolicy(ABC):
    """Policy without memory and log-probabilities; a subclass implements :meth:`choose` alone.

    inputs:   of the agent, or of a remote actor
    networks: networks that choose actions
    purpose:  name from which the seed of its random numbers ``rng`` is derived
    """

    stored_carry_shape: tuple[int, ...] = (0,)
    warming_up = False

    def __init__(
        self, inputs: AgentInputs | ActingInputs, networks: nn.Module, purpose: str = "acting"
    ) -> None:
        seed = inputs.own_seed if isinstance(inputs, ActingInputs) else inputs.seed
        self.spec = inputs.spec
        self.networks: Any = networks
        self.rng = stream(seed, purpose, inputs.behaviour)

    @abstractmethod
    def choose(self, obs: Mapping[str, Array], action_mask: Bool, greedy: bool) -> Float:
        """Return the flat actions [N, A] of N agents.

        obs: [N, ...] by name; action_mask: [N, ΣN] allowed choices; greedy: the mode instead of a sample
        """

    def initial_carry(self, n: int) -> Float:
        """Return an empty carry, [n, 0]."""
        return np.zeros((n, 0), np.float32)

    def act(
        self,
        obs: Mapping[str, Array],
        prev_action: Float,
        carry: Float,
        action_mask: Bool,
        *,
        greedy: bool = False,
    ) -> ActorOutput:
        """Return the actions of :meth:`choose`, with 0 for every log-probability."""
        action_spec = self.spec.action
        action = self.choose(obs, action_mask, greedy).astype(np.float32)
        z = action_spec.unsquashed(action[:, action_spec.discrete :])
        action[:, action_spec.discrete :] = action_spec.squashed(z)
        logp = np.zeros((len(action), action_spec.record_size), np.float32)
        return ActorOutput(action=action, z=z, behaviour_logp=logp, carry=carry)

    def state(self) -> State:
        """Return the state of the random numbers."""
        return State(meta={"rng": self.rng.bit_generator.state})

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned."""
        self.rng.bit_generator.state = state.meta["rng"]


class BehaviourPolicy:
    """Policy that acts at random during the warm-up, and samples an exploring actor afterwards.

    actor:      the exploring policy
    rng:        generator of random actions
    repeat_c:   mean number of steps for which a random continuous part is held, ≥ 1
    repeat_d:   the same for random discrete choices
    warming_up: act uniformly at random; set by the agent, which counts the steps
    greedy:     use the policy's mode instead of a sample
    """

    def __init__(
        self,
        spec: AgentSpec,
        actor: Actor,
        rng: np.random.Generator,
        *,
        warming_up: bool,
        repeat_c: float = 1.0,
        repeat_d: float = 1.0,
        greedy: bool = False,
    ) -> None:
        self._action, self._actor, self._rng, self._greedy = spec.action, actor, rng, greedy
        self._hold_c = 1.0 - 1.0 / repeat_c if spec.action.continuous else 0.0
        self._hold_d = 1.0 - 1.0 / repeat_d if spec.action.branches else 0.0
        self.warming_up = warming_up

    @property
    def stored_carry_shape(self) -> tuple[int, ...]:
        """Shape of the recorded part of a carry; (0,) if nothing is recorded."""
        return self._actor.stored_carry_shape

    def initial_carry(self, n: int) -> Float:
        """Return the carry of n agents at the start of their episodes, [n, *C]."""
        return self._actor.initial_carry(n)

    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Return a sample of the policy, or a random action while ``warming_up``.

        A random action is uniform. Each of its parts is held for a geometric number of steps. Pushes that
        change direction at each step cancel out, and the agent visits few states of a task with momentum
        (arXiv 2006.01782). If continuous actions are held, half of their numbers are at a bound: random
        pushes of full strength reach the goal of MountainCarContinuous in 98 of 100 episodes, instead of 85.

        The log-probability is that of the action given the last one, which makes ratios π/μ right. The ratio
        of a continuous action that is held or at a bound is 0: it had a positive probability, and π has only
        a density.
        """
        if not self.warming_up:
            return self._actor.act(obs, prev_action, carry, action_mask, greedy=self._greedy)
        action, z, logp = self._action.random(self._rng, action_mask)
        choices = self._action.discrete
        before = np.count_nonzero(prev_action, 1) > 0  # none at the start, with action 0
        if self._hold_d:
            can = before & ~(prev_action[:, :choices].astype(np.bool_) & ~action_mask).any(1)
            repeats = self._draw_repeats(self._hold_d, can)
            action[repeats, :choices] = prev_action[repeats, :choices]
            same = (action[can, :choices] == prev_action[can, :choices]).all(1)
            # Σ log 1/n_b of many branches has no probability that float32 could hold.
            drawn = np.log1p(-self._hold_d) + logp[can, 0]
            logp[can, 0] = np.where(same, np.logaddexp(np.log(self._hold_d), drawn), drawn)
        if self._hold_c:
            at_bound = self._rng.random(z.shape) < AT_BOUND
            z[at_bound] = np.copysign(Z_LIMIT, z[at_bound])
            repeats = self._draw_repeats(self._hold_c, before)
            z[repeats] = np.arctanh(prev_action[repeats, choices:].astype(np.float64)).clip(-Z_LIMIT, Z_LIMIT)
            action[:, choices:] = np.tanh(z)
            logp[:, -1] += z.shape[1] * np.log(1.0 - AT_BOUND) + before * np.log(1.0 - self._hold_c)
            logp[repeats | at_bound.any(1), -1] = _CERTAIN
        return ActorOutput(
            action=action, z=z, behaviour_logp=logp, carry=self._actor.remember(obs, prev_action, carry)
        )

    def _draw_repeats(self, probability: float, can: Bool) -> Bool:
        """Draw the mask [N] of agents that repeat a part of their last action, among those that ``can``."""
        return (self._rng.random(len(can)) < probability) & can

    def state(self) -> State:
        """Return the state of all random numbers, and whether the policy is warming up.

        The actor draws its noise anew, see :meth:`Actor.renew`.
        """
        self._actor.renew()
        rngs = {"actor": self._actor.rng.bit_generator.state, "warm_up": self._rng.bit_generator.state}
        return State(meta={"warming_up": self.warming_up, **rngs})

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned."""
        self._actor.rng.bit_generator.state = state.meta["actor"]
        self._rng.bit_generator.state = state.meta["warm_up"]
        self.warming_up = state.meta["warming_up"]
