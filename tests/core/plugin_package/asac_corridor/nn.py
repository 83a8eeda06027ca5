"""Networks for corridors, as an nn.py has them; for what is left out there are defaults."""

import torch

import algorithm.nn as m


class ModelRep(m.Rep):
    """The place and its square."""

    def forward(self, obs, prev_action, carry, valid):
        place = obs["obs"]
        return torch.cat([place, place.square()], -1), carry
