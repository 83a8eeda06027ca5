"""Bounds of bootstrapped values, computed from the rewards so far."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.nn.return_scale import NoReturnScale, ReturnScale


class ValueRange(nn.Module):
    """Bounds of bootstrapped values by the smallest and the largest reward so far.

    Critics without target networks bootstrap from themselves. Until an episode ends, nothing else corrects
    them, and values can grow far above any return, as on Acrobot. Rewards are those of updates, with
    relabelled ones and signals. 0 is always included, as the reward after an end.

    gamma:  discount factor of the values
    scale:  of rewards; signals with the environment's horizon are divided by it, too
    limits: [2] smallest and largest reward, before scaling
    seen:   [2] the same, with the rewards of the present batch
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
        """Return values V [B, L] clamped to their bounds.

        reward, bonus: [B, L] r and h(s'); the largest bonus is assumed at every step. valid: [B, L]
        """
        unit = self._scale.scale
        rewards = reward.where(valid, 0.0) / unit
        self.seen.copy_(torch.stack(torch.aminmax(torch.cat([rewards.flatten(), self.limits]))))
        bonuses = torch.cat([bonus.where(valid, 0.0).flatten(), bonus.new_zeros(1)])
        added = torch.stack(torch.aminmax(bonuses))
        low, high = (self.seen * unit + self._gamma * added) / (1.0 - self._gamma)
        return value.clamp(low, high)

    def commit(self, usable: Tensor) -> None:
        """Keep the rewards of the last batch if its step was taken; usable: [] bool."""
        self.limits.copy_(torch.where(usable, self.seen, self.limits))
