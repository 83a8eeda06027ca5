"""The part of an off-policy algorithm that is its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from algorithm.actions.parts import ActionParts, DiscretePolicy, MeanQ
from algorithm.agents.behaviour_config import BehaviourConfig
from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.core.spec import ActionSpec
from algorithm.nn.distributions import HybridAction
from algorithm.ops.discrete import reduce_branches

SATURATED = 0.99
"""Size of a component of u from which it counts as saturated: the gradient of tanh is below 0.02."""


class Heads(nn.Module, ABC):
    """Meaning of a policy to critics, and its losses. Positions P are flattened batches of states.

    One u per state is drawn and shared by all terms. Outputs q [..., P, N] come from critics that were given
    u: discrete outputs are conditioned on the continuous action (arXiv 1912.11077). Parameters are what is
    learned besides the networks, such as temperatures.

    parts:         ways to draw, without exploration
    learning_rate: of the parameters; None: as of the networks
    learns:        there is a policy to learn
    slow_policy:   targets come from a slow copy of the policy, which sees the states of target networks
    climbed:       critics that the policy climbs; None: all
    words, notices: on the algorithm and on its keys without effect, for the start screen
    """

    learning_rate: float | None = None
    learns = True
    slow_policy = False
    climbed: list[int] | None = None
    words: Sequence[str] = ()
    notices: Sequence[str] = ()

    def __init__(self, action: ActionSpec, parts: ActionParts) -> None:
        super().__init__()
        self.parts = parts
        self._width = action.discrete
        self._num_branches = len(action.branches)

    @abstractmethod
    def losses(self, choice: DiscretePolicy, logp: Tensor, q: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Return scalar losses by name, which share no parameter; empty without any.

        logp [P] is that of the fresh u, with gradient; q [P, N] has gradient to u only. share [P] is each
        position's part of its window's mean.
        """

    @abstractmethod
    def metrics(self, choice: DiscretePolicy, u: Tensor, logp: Tensor) -> dict[str, Tensor]:
        """Return values to log: scalars or [..., P], without gradient."""

    def sample(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return a fresh continuous action u [P, A_c] and its log-density [P], of normal noise [P, A_c]."""
        return self.parts.continuous.sample(policy, noise)

    def ahead(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the continuous action of targets and its log-density; see :meth:`sample`."""
        return self.sample(policy, noise)

    def choose(self, policy: HybridAction, mask: Tensor, mean_q: MeanQ) -> DiscretePolicy:
        """Return the discrete part of the policy; ``mean_q`` is called only by parts that choose by value."""
        return self.parts.discrete.distribution(policy, mask, mean_q)

    def entropy_bonus(self, choice: DiscretePolicy, logp: Tensor) -> Tensor:
        """Return h(s) [P], which a target adds to the value of a state."""
        return torch.zeros_like(logp)

    def q_of_action(self, q: Tensor, action: Tensor) -> Tensor:
        """Return Q(s, a) [..., P] of flat actions [P, A]: the mean over branches of the chosen outputs."""
        return self._reduced(q, action[..., : self._width])

    def expected(self, q: Tensor, choice: DiscretePolicy) -> Tensor:
        """Return R(q, π) [..., P], a state's value under the discrete part of π, without gradient to π."""
        return self._reduced(q, choice.probs.detach())

    def _reduced(self, q: Tensor, weight: Tensor) -> Tensor:
        return reduce_branches(q, weight, self._num_branches) if self._num_branches else q.squeeze(-1)

    def log_ratio(
        self, policy: HybridAction, mask: Tensor, action: Tensor, z: Tensor, behaviour_logp: Tensor
    ) -> Tensor:
        """Return the joint log π(a|s)/μ(a|s) [...] of stored actions, the sum over the parts."""
        continuous = self.parts.continuous.log_ratio(policy, z, behaviour_logp)
        return continuous + self.parts.discrete.log_ratio(policy, mask, action, behaviour_logp)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One off-policy algorithm.

    keys:       shared keys of a configuration, as the algorithm means them
    make_heads: of an action space
    make_parts: ways to draw actions; the last argument: with exploration
    """

    keys: Callable[[BehaviourConfig], OffPolicyConfig]
    make_heads: Callable[[ActionSpec, BehaviourConfig], Heads]
    make_parts: Callable[[ActionSpec, BehaviourConfig, bool], ActionParts]
