"""Networks for Pendulum: two hidden layers of 64 units are plenty for three observations."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

import algorithm.nn as m


class ModelRep(m.Rep):
    """The state is the observation: cosine and sine of the angle, and the angular velocity."""

    def forward(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """obs [B, T, 3] -> state [B, T, 3]."""
        return obs["obs"], carry


class ModelQ(nn.Module):
    """One critic; the framework makes as many as ``ensemble_q_num`` says."""

    def __init__(
        self, spec: m.AgentSpec, state_size: int, dense_n: int = 64, norm: m.Norm | None = None
    ) -> None:
        super().__init__()
        in_size = state_size + spec.action.continuous
        self.net = m.mlp(in_size, [dense_n, dense_n], m.q_size(spec.action), norm=norm)

    def forward(self, state: Tensor, c_action: Tensor) -> Tensor:
        """state [..., 3], c_action [..., 1] -> q [..., 1]."""
        return self.net(torch.cat([state, c_action], -1))


class ModelPolicy(nn.Module):
    """A squashed Gaussian over the torque; ``dense_n`` comes from ``nn_config.policy``."""

    def __init__(
        self, spec: m.AgentSpec, state_size: int, dense_n: int = 64, norm: m.Norm | None = None
    ) -> None:
        super().__init__()
        self.net = m.mlp(state_size, [dense_n, dense_n], norm=norm)
        self.head = m.ActionHead(dense_n, spec.action)

    def forward(self, state: Tensor, obs: Mapping[str, Tensor]) -> m.HybridAction:
        """state [..., 3] -> distribution over the torque in [-1, 1]."""
        return self.head(self.net(state))
