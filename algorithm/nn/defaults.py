"""The networks of a task that brings none of its own: MLPs over flattened vectors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from algorithm.nn.distributions import HybridAction
from algorithm.nn.mlp import ActionHead, mlp
from algorithm.nn.protocols import Rep, q_size
from algorithm.spec import AgentSpec


class ModelRep(Rep):
    """All observations flattened and concatenated, through ``dense_depth`` layers of ``dense_n`` units.

    With the default depth 0 the state is the observation itself, as usual for SAC on vectors.
    """

    def __init__(self, spec: AgentSpec, dense_n: int = 256, dense_depth: int = 0) -> None:
        super().__init__(spec)
        self.names = spec.obs.names
        self.net = mlp(spec.obs.flat_size, [dense_n] * dense_depth)

    def forward(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encode each token on its own."""
        parts = [obs[name].reshape(*valid.shape, -1) for name in self.names]
        flat = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        return self.net(flat.to(torch.get_default_dtype())), carry


class ModelQ(nn.Module):
    """One critic: ``dense_depth`` layers of ``dense_n`` units over state and continuous action."""

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 256, dense_depth: int = 2) -> None:
        super().__init__()
        self.net = mlp(state_size + spec.action.continuous, [dense_n] * dense_depth, q_size(spec.action))

    def forward(self, state: Tensor, c_action: Tensor) -> Tensor:
        """state [..., S], c_action [..., A_c] -> q [..., N]."""
        return self.net(torch.cat([state, c_action], -1))


class ModelPolicy(nn.Module):
    """``dense_depth`` layers of ``dense_n`` units, then the action head."""

    def __init__(self, spec: AgentSpec, state_size: int, dense_n: int = 256, dense_depth: int = 2) -> None:
        super().__init__()
        self.net = mlp(state_size, [dense_n] * dense_depth)
        self.head = ActionHead(dense_n if dense_depth else state_size, spec.action)

    def forward(self, state: Tensor, obs: Mapping[str, Tensor]) -> HybridAction:
        """state [..., S] -> distribution over actions."""
        return self.head(self.net(state))
