"""Default networks of ACER, and what its policy records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.agents.on_policy.acting import clipping
from algorithm.agents.on_policy.networks import NETWORKS
from algorithm.core.errors import UsageError
from algorithm.core.fields import AtLeastOne, Natural
from algorithm.core.spec import AgentSpec
from algorithm.nn.dry_run import check_q
from algorithm.nn.layers.initial import set_orthogonal
from algorithm.nn.layers.mlp import ACTIVATIONS, Activation, hidden_widths, mlp
from algorithm.nn.loader import Network
from algorithm.nn.protocols import q_size


class TanhQ(nn.Module):
    """Critic of 2 layers of 64 units with tanh over state and continuous action.

    dense_n, dense_depth: other numbers of units and layers
    hidden: the width of each layer instead
    activation: instead of tanh
    """

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
        size = state_size + spec.action.continuous
        self.net = mlp(size, widths, activation=ACTIVATIONS[activation])
        self.last = nn.Linear([size, *widths][-1], q_size(spec.action))
        set_orthogonal(self.net)
        set_orthogonal(self.last, 1.0)

    @override
    def forward(self, state: Tensor, c_action: Tensor) -> Tensor:
        """Return q [..., N] of state [..., S] and c_action [..., A_c]."""
        q: Tensor = self.last(self.net(torch.cat([state, c_action], -1)))
        return q


ALL_NETWORKS = {"ModelPolicy": NETWORKS["ModelPolicy"], "ModelQ": Network("q", check_q, TanhQ)}
"""Classes of an ``nn.py``; ``ModelV`` beside them where actions are continuous."""


def networks_of(spec: AgentSpec) -> Mapping[str, Network]:
    """Return the classes of an ``nn.py``: a critic of choices, or an advantage and a value.

    Raises UsageError for actions of both kinds.
    """
    if spec.action.branches and spec.action.continuous:
        raise UsageError(
            "ACER is for discrete actions, or for continuous ones",
            where="algorithm",
            why="the environment's have parts of both kinds, whose importance weights it does not join",
            fix="set algorithm: SAC or PPO",
        )
    return ALL_NETWORKS if spec.action.branches else {**ALL_NETWORKS, "ModelV": NETWORKS["ModelV"]}


def recorded(spec: AgentSpec) -> AgentSpec:
    """Return the spec with clipped actions, of which the policy records its whole distribution."""
    spec = clipping(spec)
    return replace(spec, action=replace(spec.action, records="distribution"))
