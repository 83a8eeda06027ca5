"""Layers with noisy weights for exploration (NoisyNet, arXiv 1706.10295)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.ops import library

SIGMA_0 = 0.5
"""Initial scale of the noise, before it is divided by √in (arXiv 1706.10295, section 3.2)."""


class NoisyLinear(nn.Module):
    """Linear layer with factorised noise on its weights (arXiv 1706.10295).

    y = (μ_w + σ_w ⊙ ε_out ε_inᵀ) x + μ_b + σ_b ⊙ ε_out, ε = sign(n)·√|n|, n ~ N(0, 1).

    The noise stays the same until it is drawn anew: once per step while acting, once per update. In
    evaluations it is zero, as in a new layer (:class:`~algorithm.nn.layers.noisy.LayerNoise`). Checkpoints do
    not hold it.

    in_size, out_size: widths
    """

    lib = library.TORCH

    def __init__(self, in_size: int, out_size: int) -> None:
        super().__init__()
        bound = in_size**-0.5
        self.weight = nn.Parameter(torch.empty(out_size, in_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_size).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_size, in_size), SIGMA_0 * bound))
        self.bias_sigma = nn.Parameter(torch.full((out_size,), SIGMA_0 * bound))
        self.noise_in: Tensor
        self.noise_out: Tensor
        self.register_buffer("noise_in", torch.zeros(in_size), persistent=False)
        self.register_buffer("noise_out", torch.zeros(out_size), persistent=False)

    @torch.no_grad()
    def resample_noise(self, generator: torch.Generator | None = None) -> None:
        """Draw ε anew. generator: on the layer's device; None: torch's global one."""
        size_in, size_out = len(self.noise_in), len(self.noise_out)
        noise = torch.randn(size_in + size_out, generator=generator, device=self.noise_in.device)
        noise = noise.sign() * noise.abs().sqrt()
        self.noise_in.copy_(noise[:size_in])
        self.noise_out.copy_(noise[size_in:])

    @torch.no_grad()
    def zero_noise(self) -> None:
        """Set ε to 0, so that the mean weights are used."""
        self.noise_in.zero_()
        self.noise_out.zero_()

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., in_size] to [..., out_size] with the present noise."""
        lib, noise = self.lib, self.noise_out[:, None] * self.noise_in
        weight = lib.addcmul(self.weight, self.weight_sigma, noise)
        out: Tensor = lib.linear(x, weight, lib.addcmul(self.bias, self.bias_sigma, self.noise_out))
        return out


class LayerNoise:
    """Noise of all layers in ``modules`` that have the methods of :class:`NoisyLinear`.

    on: the noise is drawn anew before each use; false: it is zero, as in evaluations
    """

    def __init__(self, modules: Iterable[nn.Module], *, on: bool) -> None:
        self._layers: list[Any] = [
            layer for module in modules for layer in module.modules() if hasattr(layer, "resample_noise")
        ]
        self._on = on

    def __bool__(self) -> bool:
        """Return whether there is a layer with noise."""
        return len(self._layers) > 0

    def apply(self, generator: torch.Generator) -> None:
        """Draw the noise of all layers, or set it to 0; to be called before each step."""
        for layer in self._layers:
            if self._on:
                layer.resample_noise(generator)
            else:
                layer.zero_noise()
