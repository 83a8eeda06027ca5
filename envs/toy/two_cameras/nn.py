"""Networks for two cameras and a speed: an encoder for each of the three, then critics and policy on top."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

import algorithm.nn as m


class ModelRep(m.Rep):
    """Both cameras through convolutions of their own and a dense layer, the speed as it is, side by side.

    The left camera is too small for the Nature network; the right one is just large enough. Which axis holds
    the channels differs between them, too, but that is none of our concern.

    left, right:  features of each camera
    random_shift: largest shift of the images in updates, in pixels; 0 is none
    """

    def __init__(self, spec: m.AgentSpec, left: int = 32, right: int = 32, random_shift: int = 0) -> None:
        super().__init__(spec)

        def camera(name: str, kind: str, width: int) -> nn.Sequential:
            convolutions = m.ImageEncoder(spec.obs, name, kind=kind, random_shift=random_shift)
            return nn.Sequential(convolutions, m.mlp(convolutions.out_size, [width]))

        self.left = camera("left", "simple", left)
        self.right = camera("right", "nature", right)
        self.speed = m.VectorEncoder(spec.obs, ["speed"])

    def forward(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """left uint8 [B, T, 24, 32, 3], right uint8 [B, T, 1, 40, 40], speed [B, T, 3] -> state [B, T, S]."""
        parts = [self.left(obs["left"]), self.right(obs["right"]), self.speed(obs)]
        return torch.cat(parts, -1), carry


class ModelQ(nn.Module):
    """One critic; the framework makes as many as ``ensemble_q_num`` says."""

    def __init__(self, spec: m.AgentSpec, state_size: int, dense_n: int = 64) -> None:
        super().__init__()
        self.net = m.mlp(state_size + spec.action.continuous, [dense_n, dense_n], m.q_size(spec.action))

    def forward(self, state: Tensor, c_action: Tensor) -> Tensor:
        """state [..., S], c_action [..., 2] -> q [..., 1]."""
        return self.net(torch.cat([state, c_action], -1))


class ModelPolicy(nn.Module):
    """A squashed Gaussian over the two answers; it learns on the state that the critics have formed."""

    def __init__(self, spec: m.AgentSpec, state_size: int, dense_n: int = 64) -> None:
        super().__init__()
        self.net = m.mlp(state_size, [dense_n, dense_n])
        self.head = m.ActionHead(dense_n, spec.action)

    def forward(self, state: Tensor, obs: Mapping[str, Tensor]) -> m.HybridAction:
        """state [..., S] -> distribution over the answers in [-1, 1]."""
        return self.head(self.net(state))
