"""Action distributions of a policy, with samples and log-densities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from algorithm.ops.densities import tanh_normal_logp, tanh_normal_sample


@dataclass(frozen=True)
class TanhNormal:
    """Distribution of u = tanh(z), z ~ N(mean, exp(log_std)²), elementwise independent."""

    mean: Tensor  # [..., A_c]
    log_std: Tensor  # [..., A_c]

    def rsample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return a reparameterised z [..., A_c] and the log-density [...] of u = tanh(z).

        noise: [..., A_c] standard normal
        """
        return tanh_normal_sample(self.mean, self.log_std, noise)

    def sample(self) -> tuple[Tensor, Tensor]:
        """Return a reparameterised u [..., A_c] and its log-density [...], by torch's global generator."""
        z, logp = self.rsample(torch.randn_like(self.mean))
        return z.tanh(), logp

    def logp(self, z: Tensor) -> Tensor:
        """Return the log-density [...] of u = tanh(z), z [..., A_c]."""
        return tanh_normal_logp(z, self.mean, self.log_std)


@dataclass(frozen=True)
class HybridAction:
    """Output of a ``ModelPolicy``: a distribution for each kind of action in the spec.

    Models need not apply masks: logits of actions that are not allowed are ignored.
    """

    continuous: TanhNormal | None = None
    logits: Tensor | None = None  # [..., ΣN] unnormalised, the branches one after the other

    def map(self, fn: Callable[[Tensor], Tensor]) -> HybridAction:
        """Return the same distributions with ``fn`` (a view, a slice) applied to every tensor."""
        continuous, logits = self.continuous, self.logits
        return HybridAction(
            continuous=continuous and TanhNormal(fn(continuous.mean), fn(continuous.log_std)),
            logits=None if logits is None else fn(logits),
        )
