"""Bounds of bootstrapped values, by the rewards so far."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.nn.return_scale import NoReturnScale, ReturnScale


class ValueRange(nn.Module):
    """Smallest and largest reward so far, and bounds that they give to bootstrapped values.

    Critics without target networks follow themselves. Where no episode has ended, nothing else corrects
    them, and values far above any return came of it (Acrobot). Rewards are those of updates, with relabelled
    ones and signals. 0 is among them: an end has it.

    gamma:  of the values
    scale:  of rewards; signals that share the environment's horizon are scaled back with its rewards
    limits: [2] both rewards, before scaling
    seen:   [2] the same, with those of the present batch
    """

    limits: Tensor
    seen: Tensor

    def __init__(self, gamma: float, scale: ReturnScale | NoReturnScale) -> None:
        super().__init__()
        self._gamma = gamma
        self._scale = scale
        self.register_buffer("limits", torch.zeros(2))
        self.register_buffer("seen", torch.zeros(2), persistent=False)

    @override
    def forward(self, value: Tensor, reward: Tensor, bonus: Tensor, valid: Tensor) -> Tensor:
        """Return V within its bounds: [B, L], of r and h [B, L]. The largest bonus counts at every step."""
        unit = self._scale.scale
        rewards = reward.where(valid, 0.0) / unit
        self.seen.copy_(torch.stack(torch.aminmax(torch.cat([rewards.flatten(), self.limits]))))
        bonuses = torch.cat([bonus.where(valid, 0.0).flatten(), bonus.new_zeros(1)])
        added = torch.stack(torch.aminmax(bonuses))
        low, high = (self.seen * unit + self._gamma * added) / (1.0 - self._gamma)
        return value.clamp(low, high)

    def commit(self, usable: Tensor) -> None:
        """Take over the rewards of the last batch, if its step was ``usable`` [] bool."""
        self.limits.copy_(torch.where(usable, self.seen, self.limits))
