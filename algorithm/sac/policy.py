"""How the parts of an action become one value and one policy loss; the only place where they are composed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from algorithm.nn.distributions import HybridAction
from algorithm.ops.sac import policy_loss
from algorithm.sac.heads import ContinuousHead
from algorithm.sac.temperature import Temperature


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """A fresh action at each position and what it costs in entropy."""

    c_action: Tensor  # [..., A_c] u in [-1, 1]
    logp: Tensor  # [...] log-density of u
    bonus: Tensor  # [...] h(s) = −α log π(u|s)


class Composition(nn.Module):
    """The heads of an agent with their temperatures.

    A critic's N outputs are reduced over the policy; without discrete branches its only output is Q.
    """

    def __init__(self, head: ContinuousHead, temperature: Temperature) -> None:
        super().__init__()
        self.head = head
        self.temperature = temperature

    def sample(self, policy: HybridAction, generator: torch.Generator) -> Sampled:
        """One action per position, shared by everything that needs one there."""
        u, _, logp = self.head.sample(policy, generator)
        return Sampled(c_action=u, logp=logp, bonus=-self.temperature.alpha * logp)

    def taken(self, q: Tensor) -> Tensor:
        """Q(s, a) [...] of the action the critic was asked about, from its outputs [..., N]."""
        return q.squeeze(-1)

    def expected(self, q: Tensor) -> Tensor:
        """R(q, π) [...]: the outputs [..., N] reduced over the discrete part of the policy."""
        return q.squeeze(-1)

    def log_ratio(self, policy: HybridAction, z: Tensor, behaviour_logp: Tensor) -> Tensor:
        """Joint log π(a|s)/μ(a|s) [...] of stored actions, the sum over the parts."""
        return self.head.log_ratio(policy, z, behaviour_logp)

    def losses(self, sampled: Sampled, q: Tensor, valid: Tensor) -> dict[str, Tensor]:
        """Policy and temperature loss by name: sampled [P], q [P, N] of its action, valid [P] -> scalars.

        They share no parameter, so one backward pass of their sum and one optimiser serve all.
        """
        return {
            "policy": policy_loss(sampled.logp, self.expected(q), self.temperature.alpha, valid),
            "alpha": self.temperature.loss(sampled.logp, valid),
        }
