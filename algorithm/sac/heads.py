"""Everything that depends on the kind of action. SAC composes heads and never asks which kind it has."""

from __future__ import annotations

import torch
from torch import Tensor

from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.spec import ActionSpec


class ContinuousHead:
    """The continuous part: a squashed Gaussian, its log-density stored in one column of ``behaviour_logp``.

    action: the spec; logp_column: the column of H that belongs to this part.
    """

    def __init__(self, action: ActionSpec, logp_column: int = 0) -> None:
        self.action = action
        self.logp_column = logp_column

    @staticmethod
    def part(policy: HybridAction) -> TanhNormal:
        """The distribution of this part; the dry run has made sure that it is there."""
        assert policy.continuous is not None
        return policy.continuous

    def sample(
        self, policy: HybridAction, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """A reparameterised action u [..., A_c], its z [..., A_c] and log-density [...]."""
        z, logp = self.part(policy).rsample(generator)
        return z.tanh(), z, logp

    def of(self, action: Tensor) -> Tensor:
        """The continuous part [..., A_c] of a flat action [..., A]."""
        return action[..., self.action.discrete :]

    def log_ratio(self, policy: HybridAction, z: Tensor, behaviour_logp: Tensor) -> Tensor:
        """log π(u|s) − log μ(u|s) [...] at the stored z [..., A_c]; both are densities of u."""
        return self.part(policy).logp(z) - behaviour_logp[..., self.logp_column]
