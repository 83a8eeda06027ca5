"""The continuous part of an action: a squashed Gaussian, or nothing."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from algorithm.nn.distributions import HybridAction
from algorithm.ops.sac import policy_loss
from algorithm.sac.heads import continuous_part, logits_of
from algorithm.sac.temperature import Temperature

SATURATED = 0.99
"""A component of u further out is at the end of its range: there the gradient of tanh is below 0.02."""


class TanhNormalHead(nn.Module):
    """A squashed Gaussian; its log-density is the last column of ``behaviour_logp``.

    target_entropy: what a learned temperature steers the entropy to
    """

    def __init__(self, temperature: Temperature, target_entropy: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.target_entropy = target_entropy

    def draw(self, policy: HybridAction, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """See :class:`ContinuousHead`."""
        z, logp = continuous_part(policy).rsample(generator)
        return z.tanh(), logp

    def bonus(self, logp: Tensor) -> Tensor:
        """See :class:`ContinuousHead`."""
        return -self.temperature.alpha * logp

    def log_ratio(self, policy: HybridAction, z: Tensor, behaviour_logp: Tensor) -> Tensor:
        """Both are densities of u, so that the Jacobian cancels."""
        return continuous_part(policy).logp(z) - behaviour_logp[..., -1]

    def losses(self, logp: Tensor, value: Tensor, share: Tensor) -> dict[str, Tensor]:
        """See :func:`algorithm.ops.sac.policy_loss` and :func:`~algorithm.ops.sac.temperature_loss`."""
        return {
            "policy": policy_loss(logp, value, self.temperature.alpha, share),
            "alpha": self.temperature.loss(-logp.detach(), self.target_entropy, share),
        }

    def metrics(self, u: Tensor, logp: Tensor) -> dict[str, Tensor]:
        """Entropy, what it is steered to, temperature, and which components of u are saturated [A_c, P]."""
        return {
            "policy/entropy_c": -logp.detach(),
            "policy/target_entropy_c": torch.tensor(self.target_entropy),
            "policy/alpha_c": self.temperature.alpha,
            "policy/saturation": u.detach().t().abs() > SATURATED,
        }


class NoContinuous(nn.Module):
    """For agents without continuous actions: u is empty, its log-density 0."""

    def draw(self, policy: HybridAction, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """See :class:`ContinuousHead`."""
        logits = logits_of(policy)
        return logits.new_zeros(*logits.shape[:-1], 0), logits.new_zeros(logits.shape[:-1])

    def bonus(self, logp: Tensor) -> Tensor:
        """Zero."""
        return logp

    def log_ratio(self, policy: HybridAction, z: Tensor, behaviour_logp: Tensor) -> Tensor:
        """Zero."""
        return behaviour_logp.new_zeros(behaviour_logp.shape[:-1])

    def losses(self, logp: Tensor, value: Tensor, share: Tensor) -> dict[str, Tensor]:
        """Nothing to learn."""
        return {}

    def metrics(self, u: Tensor, logp: Tensor) -> dict[str, Tensor]:
        """Nothing to say."""
        return {}
