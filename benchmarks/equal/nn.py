"""The networks of the comparison, written as an ordinary user would write them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

import algorithm.nn as m


class ModelQ(nn.Module):
    """Two hidden layers of 256 units over state and action."""

    def __init__(self, spec: m.AgentSpec, state_size: int) -> None:
        super().__init__()
        self.net = m.mlp(state_size + spec.action.continuous, [256, 256], 1)

    def forward(self, state: Tensor, c_action: Tensor) -> Tensor:
        """state [..., S], c_action [..., A_c] -> q [..., 1]."""
        return self.net(torch.cat([state, c_action], -1))


class ModelPolicy(nn.Module):
    """Two hidden layers of 256 units, then mean and log standard deviation."""

    def __init__(self, spec: m.AgentSpec, state_size: int) -> None:
        super().__init__()
        self.net = m.mlp(state_size, [256, 256])
        self.head = m.ActionHead(256, spec.action)

    def forward(self, state: Tensor, obs: Mapping[str, Tensor]) -> m.HybridAction:
        """state [..., S] -> distribution over actions [..., A_c]."""
        return self.head(self.net(state))
