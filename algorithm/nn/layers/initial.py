"""First values of layers."""

from __future__ import annotations

import math

import torch
from torch import nn

from algorithm.nn.layers.recurrent import RecurrentLayer

HIDDEN_GAIN = math.sqrt(2.0)
"""Gain of orthogonal first values in front of a layer's activation (The 37 Implementation Details, 2)."""


@torch.no_grad()
def set_orthogonal(module: nn.Module | None, gain: float = HIDDEN_GAIN) -> None:
    """Give every layer orthogonal weights (arXiv 1312.6120), and biases of 0.

    gain: of linear and convolutional layers; recurrent ones have 1
    """
    for layer in module.modules() if module is not None else ():
        if isinstance(layer, nn.Linear | nn.Conv2d | RecurrentLayer):
            for name, parameter in layer.named_parameters(recurse=False):
                if "bias" in name:
                    nn.init.zeros_(parameter)
                else:
                    nn.init.orthogonal_(parameter, 1.0 if isinstance(layer, RecurrentLayer) else gain)
