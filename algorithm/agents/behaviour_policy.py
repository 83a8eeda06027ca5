"""Policies that collect experience: without memory, and with random actions before samples of an actor."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn
from typing_extensions import override

from algorithm.actions.actor import Actor
from algorithm.agents.roles import ActingInputs, AgentInputs
from algorithm.core.data import ActorOutput, Array, Bool, Float, State
from algorithm.core.seeding import stream
from algorithm.core.spec import Z_LIMIT, AgentSpec

AT_BOUND = 0.5
"""Share of the numbers of random actions that are at a bound, where actions are held."""

_CERTAIN = np.float32(1e6)
"""Log-density of a continuous action that had a probability: π/μ is 0, and the number is finite."""


class MemorylessPolicy(ABC):
    """Policy without memory and densities: :meth:`choose` is all of it.

    inputs:   of the agent, or of a remote actor
    networks: that it acts by
    purpose:  names its random numbers, ``rng``
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
        """Return the flat actions [N, A] of N agents. greedy: the mode instead of a sample."""

    def initial_carry(self, n: int) -> Float:
        """Return nothing, [n, 0]."""
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
        """Return what :meth:`choose` says, with 0 for every log-probability."""
        own = self.spec.action
        action = self.choose(obs, action_mask, greedy).astype(np.float32)
        z = own.unsquashed(action[:, own.discrete :])
        action[:, own.discrete :] = own.squashed(z)
        logp = np.zeros((len(action), own.record_size), np.float32)
        return ActorOutput(action=action, z=z, behaviour_logp=logp, carry=carry)

    def state(self) -> State:
        """Return its random numbers."""
        return State(meta={"rng": self.rng.bit_generator.state})

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned."""
        self.rng.bit_generator.state = state.meta["rng"]


class BehaviourPolicy:
    """Policy that acts at random during the warm-up, and samples an exploring actor afterwards.

    actor:      the exploring policy
    rng:        generator of random actions
    repeat_c:   mean number of steps that a random continuous part is held, ≥ 1
    repeat_d:   the same of random choices
    warming_up: act uniformly at random; set by the agent, which counts the steps
    greedy:     take the policy's mode instead of a sample
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
        """Shape of a recorded carry: the whole carry's, or (0,) for nothing."""
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
        (arXiv 2006.01782). Where continuous actions are held, half of their numbers are at a bound: random
        pushes of full strength reach the goal of MountainCarContinuous in 98 of 100 episodes, instead of 85.

        The log-probability is that of the action given the last one, which makes ratios π/μ right. The ratio
        of a continuous action that is held or at a bound is 0: it had a probability, and no density gives it
        one.
        """
        if not self.warming_up:
            return self._actor.act(obs, prev_action, carry, action_mask, greedy=self._greedy)
        action, z, logp = self._action.random(self._rng, action_mask)
        choices = self._action.discrete
        before = np.count_nonzero(prev_action, 1) > 0  # none at the start, with action 0
        if self._hold_d:
            can = before & ~(prev_action[:, :choices].astype(np.bool_) & ~action_mask).any(1)
            held = self._held(self._hold_d, can)
            action[held, :choices] = prev_action[held, :choices]
            same = (action[can, :choices] == prev_action[can, :choices]).all(1)
            # Σ log 1/n_b of many branches has no probability that float32 could hold.
            drawn = np.log1p(-self._hold_d) + logp[can, 0]
            logp[can, 0] = np.where(same, np.logaddexp(np.log(self._hold_d), drawn), drawn)
        if self._hold_c:
            at_bound = self._rng.random(z.shape) < AT_BOUND
            z[at_bound] = np.copysign(Z_LIMIT, z[at_bound])
            held = self._held(self._hold_c, before)
            z[held] = np.arctanh(prev_action[held, choices:].astype(np.float64)).clip(-Z_LIMIT, Z_LIMIT)
            action[:, choices:] = np.tanh(z)
            logp[:, -1] += z.shape[1] * np.log(1.0 - AT_BOUND) + before * np.log(1.0 - self._hold_c)
            logp[held | at_bound.any(1), -1] = _CERTAIN
        return ActorOutput(
            action=action, z=z, behaviour_logp=logp, carry=self._actor.remember(obs, prev_action, carry)
        )

    def _held(self, probability: float, can: Bool) -> Bool:
        """Draw the agents [N] that repeat a part of their last action, of those that ``can``."""
        return (self._rng.random(len(can)) < probability) & can

    def state(self) -> State:
        """Return the state of its random numbers, and whether it is warming up; see :meth:`Actor.renew`."""
        self._actor.renew()
        rngs = {"actor": self._actor.rng.bit_generator.state, "warm_up": self._rng.bit_generator.state}
        return State(meta={"warming_up": self.warming_up, **rngs})

    def load_state(self, state: State) -> None:
        """Continue from what :meth:`state` returned."""
        self._actor.rng.bit_generator.state = state.meta["actor"]
        self._rng.bit_generator.state = state.meta["warm_up"]
        self.warming_up = state.meta["warming_up"]


class HoldingPolicy(BehaviourPolicy):
    """Policy whose agents hold the normal noise of their actions for n steps, P(n) ∝ n⁻² (arXiv 2604.04539).

    The density that is stored with an action is that of a fresh one. Random actions of the warm-up are not
    concerned. A row of the carry has the numbers of the networks' carry, the steps that the noise is held
    on, and the noise [A_c]. So the noise goes where its agent goes, and an episode begins with a fresh one.

    longest: the largest n
    rng:     generator of random actions and, after them, of noise
    repeat_c, repeat_d, warming_up: as of :class:`BehaviourPolicy`
    """

    def __init__(
        self,
        spec: AgentSpec,
        actor: Actor,
        rng: np.random.Generator,
        *,
        longest: int,
        warming_up: bool,
        repeat_c: float = 1.0,
        repeat_d: float = 1.0,
    ) -> None:
        super().__init__(spec, actor, rng, warming_up=warming_up, repeat_c=repeat_c, repeat_d=repeat_d)
        self._shape = actor.initial_carry(1).shape[1:]
        self._size = math.prod(self._shape)
        shares = np.arange(1.0, longest + 1.0) ** -2.0
        self._below = np.cumsum(shares / shares.sum())[:-1]  # P(≤ n) of n below the longest
        self._step = np.eye(1, 1 + spec.action.continuous, dtype=np.float32)

    @override
    def initial_carry(self, n: int) -> Float:
        """Return the carry of n agents at the start of their episodes, whose noise is not drawn yet."""
        held = np.zeros((n, 1 + self._action.continuous), np.float32)
        return np.concatenate((super().initial_carry(n).reshape(n, self._size), held), 1)

    @override
    def act(
        self, obs: Mapping[str, Array], prev_action: Float, carry: Float, action_mask: Bool
    ) -> ActorOutput:
        """Return a sample of the policy of each agent's noise; see :meth:`BehaviourPolicy.act`."""
        n = len(carry)
        own = carry[:, : self._size].reshape(n, *self._shape)
        held = carry[:, self._size :]
        if self.warming_up:
            acted = super().act(obs, prev_action, own, action_mask)
        else:
            held = self._continued(held)
            acted = self._actor.act(obs, prev_action, own, action_mask, normal=held[:, 1:])
        return ActorOutput(
            action=acted.action,
            z=acted.z,
            behaviour_logp=acted.behaviour_logp,
            carry=np.concatenate((acted.carry.reshape(n, self._size), held), 1),
        )

    def _continued(self, held: Float) -> Float:
        """Return steps left and noise [N, 1 + A_c] of a further step, drawn anew where no step was left."""
        held = held - self._step
        over = (held[:, 0] < 0.0).nonzero()[0]
        if k := len(over):
            drawn = self._rng.standard_normal((k, held.shape[1]), np.float32)
            drawn[:, 0] = self._below.searchsorted(self._rng.random(k), "right")
            held[over] = drawn
        return held
