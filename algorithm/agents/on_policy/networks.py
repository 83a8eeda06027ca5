"""Default networks of on-policy families, and their first values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.errors import ModelError
from algorithm.core.fields import AtLeastOne, Natural
from algorithm.core.spec import AgentSpec
from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.nn.dry_run import check_policy, check_v
from algorithm.nn.layers.initial import set_orthogonal
from algorithm.nn.layers.mlp import ACTIVATIONS, LOG_STD_RANGE, ActionHead, Activation, hidden_widths, mlp
from algorithm.nn.layers.norm import has_batch_norm
from algorithm.nn.loader import Network, Networks
from algorithm.nn.protocols import Obs, Rep

_LogStd = Annotated[float, Field(ge=LOG_STD_RANGE[0], le=LOG_STD_RANGE[1])]


class TanhPolicy(nn.Module):
    """Policy of 2 layers of 64 units with tanh, then the action head.

    dense_n, dense_depth: other numbers of units and layers
    hidden: the width of each layer instead
    std: ``parameter``: the standard deviation of each continuous action is a parameter; ``state``: it is an
         output, as the mean
    log_std_init: first value of the logarithm of that parameter
    activation: instead of tanh
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
            raise ValueError("with std: state there is no parameter whose first value log_std_init could be")
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
        dense_n: AtLeastOne | None = None,
        dense_depth: Natural | None = None,
        hidden: Sequence[AtLeastOne] | None = None,
        activation: Activation = "tanh",
    ) -> None:
        super().__init__()
        widths = hidden_widths(dense_n, dense_depth, hidden, 64)
        self.net = mlp(state_size, widths, activation=ACTIVATIONS[activation])
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


class SharedEncoder(nn.Module):
    """One encoder, whose states both policy and values get. Arguments of both are those of :class:`Rep`."""

    def __init__(self, rep: Rep) -> None:
        super().__init__()
        self.rep = rep

    @override
    def forward(self, obs: Obs, prev_action: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states [B, T, S] for the policy and for values."""
        state, _ = self.rep(obs, prev_action, carry, valid)
        return state, state

    def for_values(self, obs: Obs, prev_action: Tensor, carry: Tensor, valid: Tensor) -> Tensor:
        """Return the states [B, T, S] for values alone."""
        state: Tensor = self.rep(obs, prev_action, carry, valid)[0]
        return state

    def own(self) -> dict[str, nn.Module]:
        """Return what is no part of the policy, by name."""
        return {}


class SeparateEncoders(SharedEncoder):
    """An encoder for the policy and one of the same kind for values, each learned by its own loss."""

    def __init__(self, rep: Rep, value_rep: Rep) -> None:
        super().__init__(rep)
        self.value_rep = value_rep

    @override
    def forward(self, obs: Obs, prev_action: Tensor, carry: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        state, _ = self.rep(obs, prev_action, carry, valid)
        return state, self.for_values(obs, prev_action, carry, valid)

    @override
    def for_values(self, obs: Obs, prev_action: Tensor, carry: Tensor, valid: Tensor) -> Tensor:
        state: Tensor = self.value_rep(obs, prev_action, carry, valid)[0]
        return state

    @override
    def own(self) -> dict[str, nn.Module]:
        return {"value_encoder": self.value_rep}


def check_norms(networks: Networks) -> None:
    """Raise ModelError for a batch norm: a ratio of 1 needs the networks to act as they are trained."""
    for name, network in {"ModelRep": networks.rep, **networks.built}.items():
        if has_batch_norm(network):
            raise ModelError(
                f"{name} has a batch norm",
                why="while learning it would give other actions and values than while acting",
                fix="take layer norm there, or SAC",
            )


def make_encoders(networks: Networks, *, shared: bool, device: torch.device) -> SharedEncoder:
    """Return the encoder or encoders of a learner; default ones begin orthogonal."""
    reps = [networks.rep] if shared else [networks.rep, cast(Rep, networks.make("ModelRep"))]
    if networks.sources["ModelRep"] == "default":
        for rep in reps:
            set_orthogonal(rep)
    return (SharedEncoder if shared else SeparateEncoders)(*reps).to(device).eval()
