"""The entropy temperature of one action part: learned or fixed."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from algorithm.ops.sac import temperature_loss


class Temperature(Protocol):
    """α of one action part."""

    @property
    def alpha(self) -> Tensor:
        """exp(log α), a scalar without gradient."""
        ...

    def loss(self, entropy: Tensor, target: float | Tensor, share: Tensor) -> Tensor:
        """Return the scalar loss of α; entropy [P] without gradient, target one number or [P], share [P]."""
        ...


class FixedTemperature(nn.Module):
    """A constant α (``use_auto_alpha: false``)."""

    log_alpha: Tensor

    def __init__(self, init_log_alpha: float) -> None:
        super().__init__()
        self.register_buffer("log_alpha", torch.tensor(init_log_alpha))

    @property
    def alpha(self) -> Tensor:
        """exp(log α), a scalar."""
        return self.log_alpha.exp()

    def loss(self, entropy: Tensor, target: float | Tensor, share: Tensor) -> Tensor:
        """Return zero: nothing is learned."""
        return torch.zeros_like(self.log_alpha)


class LearnedTemperature(nn.Module):
    """α adjusted so that the policy's entropy reaches its target (arXiv 1812.05905, section 5)."""

    def __init__(self, init_log_alpha: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(init_log_alpha))

    @property
    def alpha(self) -> Tensor:
        """exp(log α), a scalar without gradient."""
        return self.log_alpha.detach().exp()

    def loss(self, entropy: Tensor, target: float | Tensor, share: Tensor) -> Tensor:
        """Return ``log α · mean(H − H̄)``."""
        return temperature_loss(self.log_alpha, entropy, target, share)
