"""Default networks of on-policy families, and their first values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.nn.dry_run import check_policy, check_v
from algorithm.nn.loader import Network
from algorithm.nn.mlp import LOG_STD_RANGE, ActionHead, hidden_widths, mlp
from algorithm.spec import AgentSpec

HIDDEN_GAIN = math.sqrt(2.0)
"""Gain of orthogonal first values in front of a layer's activation (The 37 Implementation Details, 2)."""


class TanhPolicy(nn.Module):
    """Policy of 2 layers of 64 units with tanh, then the action head.

    dense_n, dense_depth: other numbers of units and layers
    hidden: the width of each layer instead
    std: ``parameter``: the standard deviation of each continuous action is a parameter; ``state``: it is an
         output, as the mean
    log_std_init: first value of the logarithm of that parameter
    """

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        dense_n: int | None = None,
        dense_depth: int | None = None,
        std: Literal["parameter", "state"] = "parameter",
        log_std_init: float = 0.0,
        hidden: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        widths = hidden_widths(dense_n, dense_depth, hidden, 64)
        width = [state_size, *widths][-1]
        self.net = mlp(state_size, widths, activation=nn.Tanh)
        self.head = ActionHead(width, spec.action)
        self.log_std: nn.Parameter | None = None
        if spec.action.continuous and std == "parameter":
            self.head.continuous = nn.Linear(width, spec.action.continuous)
            self.log_std = nn.Parameter(torch.full((spec.action.continuous,), float(log_std_init)))
        set_orthogonal(self.net)
        for layer in (self.head.continuous, self.head.discrete):
            set_orthogonal(layer, 0.01)

    @override
    def forward(self, state: Tensor, obs: Mapping[str, Tensor]) -> HybridAction:
        """Return the distribution over actions in state [..., S]."""
        features = self.net(state)
        if self.log_std is None or self.head.continuous is None:
            policy: HybridAction = self.head(features)
            return policy
        mean = self.head.continuous(features)
        part = TanhNormal(mean, self.log_std.clamp(*LOG_STD_RANGE).expand_as(mean))
        return HybridAction(part, None if self.head.discrete is None else self.head.discrete(features))


class TanhValue(nn.Module):
    """Value function of 2 layers of 64 units with tanh; arguments as of :class:`TanhPolicy`."""

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        dense_n: int | None = None,
        dense_depth: int | None = None,
        hidden: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        widths = hidden_widths(dense_n, dense_depth, hidden, 64)
        self.net = mlp(state_size, widths, activation=nn.Tanh)
        self.last = nn.Linear([state_size, *widths][-1], 1)
        set_orthogonal(self.net)
        set_orthogonal(self.last, 1.0)

    @override
    def forward(self, state: Tensor, obs: Mapping[str, Tensor]) -> Tensor:
        """Return V [...] of state [..., S] and obs of the same positions."""
        value: Tensor = self.last(self.net(state)).squeeze(-1)
        return value


NETWORKS = {
    "ModelPolicy": Network("policy", check_policy, TanhPolicy),
    "ModelV": Network("v", check_v, TanhValue),
}
"""Classes of an ``nn.py``."""


@torch.no_grad()
def set_orthogonal(module: nn.Module | None, gain: float = HIDDEN_GAIN) -> None:
    """Give every linear and convolutional layer orthogonal weights (arXiv 1312.6120), and biases of 0."""
    for layer in module.modules() if module is not None else ():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(layer.weight, gain)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
