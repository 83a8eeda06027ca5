"""Initial weights of layers."""

from __future__ import annotations

import math

import torch
from torch import nn

from algorithm.nn.layers.recurrent import RecurrentLayer

HIDDEN_GAIN = math.sqrt(2.0)
"""Gain of orthogonal initial weights before an activation (The 37 Implementation Details, 2)."""


@torch.no_grad()
def set_orthogonal(module: nn.Module | None, gain: float = HIDDEN_GAIN) -> None:
    """Initialise all layers of a module with orthogonal weights (arXiv 1312.6120) and biases of 0.

    gain: of linear and convolutional layers; that of recurrent layers is 1
    """
    for layer in module.modules() if module is not None else ():
        if isinstance(layer, nn.Linear | nn.Conv2d | RecurrentLayer):
            for name, parameter in layer.named_parameters(recurse=False):
                if "bias" in name:
                    nn.init.zeros_(parameter)
                else:
                    nn.init.orthogonal_(parameter, 1.0 if isinstance(layer, RecurrentLayer) else gain)
