"""A memory of the picture alone: what the simulator knows of ball and paddle is left to the world model."""

from collections.abc import Mapping

import torch
from torch import Tensor

import algorithm.nn as m


class ModelRep(m.Rep):
    """The picture through convolutions and a recurrent layer; ``truth`` is not used.

    dense_n: features of the picture
    rnn_n:   units of the memory
    """

    def __init__(self, spec: m.AgentSpec, dense_n: int = 64, rnn_n: int = 64) -> None:
        super().__init__(spec)
        self.picture = m.ImageEncoder(spec.obs, "picture", out=dense_n)
        self.memory = m.GRU(self.picture.out_size + spec.action.size, rnn_n)
        self.carry_shape = self.stored_carry_shape = self.memory.carry_shape

    def forward(
        self, obs: Mapping[str, Tensor], prev_action: Tensor, carry: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """picture uint8 [B, T, 32, 32] -> state [B, T, S]; zeros for a token that does not exist."""
        features = self.picture(obs["picture"])
        remembered, after = self.memory(torch.cat([features, prev_action], -1), carry, valid)
        state = torch.cat([features, remembered], -1)
        return torch.where(valid.unsqueeze(-1), state, 0.0), after
