"""Noise inside layers that explore (:class:`~algorithm.nn.noisy.NoisyLinear`, or a task's own)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, cast

import torch
from torch import nn


class ExploringLayer(Protocol):
    """Layer with noise of its own, in buffers that these methods overwrite in place."""

    def resample_noise(self, generator: torch.Generator | None) -> None:
        """Draw it anew."""
        ...

    def zero_noise(self) -> None:
        """Set it to zero."""
        ...


class LayerNoise:
    """Noise of all such layers in ``modules``, set before each use.

    on: drawn anew for each use; false for evaluation, where it is zero.
    """

    def __init__(self, modules: Iterable[nn.Module], *, on: bool) -> None:
        found = (
            layer for module in modules for layer in module.modules() if hasattr(layer, "resample_noise")
        )
        self._layers = [cast(ExploringLayer, layer) for layer in found]
        self._on = on

    def apply(self, generator: torch.Generator) -> None:
        """Set the noise, before each step; costs nothing where there are no such layers."""
        for layer in self._layers:
            if self._on:
                layer.resample_noise(generator)
            else:
                layer.zero_noise()
