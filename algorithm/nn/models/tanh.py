"""Default networks of on-policy families, with tanh as in the reference implementations of PPO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.fields import AtLeastOne, Natural
from algorithm.core.spec import AgentSpec
from algorithm.nn.layers.initial import set_orthogonal
from algorithm.nn.layers.mlp import ACTIVATIONS, LOG_STD_RANGE, ActionHead, Activation, hidden_widths, mlp
from algorithm.nn.protocols import HybridAction

_LogStd = Annotated[float, Field(ge=LOG_STD_RANGE[0], le=LOG_STD_RANGE[1])]


class TanhPolicy(nn.Module):
    """Policy of 2 layers of 64 units with tanh, then the action head.

    dense_n, dense_depth: other numbers of units and layers
    hidden: width of each layer, in place of the two above
    std: ``parameter``: the standard deviation of each continuous action is a parameter; ``state``: it is an
         output, like the mean
    log_std_init: initial logarithm of that parameter
    activation: in place of tanh
    """

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        dense_n: AtLeastOne | None = None,
        dense_depth: Natural | None = None,
        std: Literal["parameter", "state"] = "parameter",
        log_std_init: _LogStd = 0.0,
        hidden: Sequence[AtLeastOne] | None = None,
        activation: Activation = "tanh",
    ) -> None:
        super().__init__()
        if std == "state" and log_std_init:
            raise ValueError("with std: state there is no parameter for log_std_init to initialise")
        widths = hidden_widths(dense_n, dense_depth, hidden, 64)
        width = [state_size, *widths][-1]
        self.net = mlp(state_size, widths, activation=ACTIVATIONS[activation])
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
        policy: HybridAction = self.head(self.net(state), self.log_std)
        return policy


class TanhLayers(nn.Module):
    """2 layers of 64 units with tanh, then a linear layer.

    dense_n, dense_depth, hidden, activation: as of :class:`TanhPolicy`
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        dense_n: int | None,
        dense_depth: int | None,
        hidden: Sequence[int] | None,
        activation: Activation,
    ) -> None:
        super().__init__()
        widths = hidden_widths(dense_n, dense_depth, hidden, 64)
        self.net = mlp(in_size, widths, activation=ACTIVATIONS[activation])
        self.last = nn.Linear([in_size, *widths][-1], out_size)
        set_orthogonal(self.net)
        set_orthogonal(self.last, 1.0)

    def outputs(self, x: Tensor) -> Tensor:
        """Return [..., out_size] of x [..., in_size]."""
        out: Tensor = self.last(self.net(x))
        return out


class TanhValue(TanhLayers):
    """Value function V(s); arguments as of :class:`TanhLayers`."""

    def __init__(
        self,
        spec: AgentSpec,
        state_size: int,
        dense_n: AtLeastOne | None = None,
        dense_depth: Natural | None = None,
        hidden: Sequence[AtLeastOne] | None = None,
        activation: Activation = "tanh",
    ) -> None:
        super().__init__(state_size, 1, dense_n, dense_depth, hidden, activation)

    @override
    def forward(self, state: Tensor, obs: Mapping[str, Tensor]) -> Tensor:
        """Return V [...] of state [..., S] and obs of the same positions."""
        return self.outputs(state).squeeze(-1)
