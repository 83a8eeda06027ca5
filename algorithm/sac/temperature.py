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
        """Scalar loss that moves α; entropy [P] without gradient, target one number or [P], share [P]."""
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
        """Nothing to learn: zero."""
        return torch.zeros_like(self.log_alpha)


class LearnedTemperature(nn.Module):
    """α adjusted until the policy's entropy meets its target (arXiv 1812.05905, section 5)."""

    def __init__(self, init_log_alpha: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(init_log_alpha))

    @property
    def alpha(self) -> Tensor:
        """exp(log α), a scalar without gradient."""
        return self.log_alpha.detach().exp()

    def loss(self, entropy: Tensor, target: float | Tensor, share: Tensor) -> Tensor:
        """``log α · mean(H − H̄)``."""
        return temperature_loss(self.log_alpha, entropy, target, share)
