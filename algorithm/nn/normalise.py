"""Observations on one scale: running mean and variance of everything that is a vector of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from algorithm.nn.images import image_layouts
from algorithm.spec import ObsSpec

CLIP = 5.0
"""Normalised numbers end here, in standard deviations."""

EPSILON = 1e-8
"""Added to the variance, so that an element that never changes stays 0."""

UNUSABLE = 1e18
"""A row with a number as large as this is left out of the statistics: all others would be 0 permanently."""

KNOWN = 100
"""After so many rows a number that is far from all others can be told from them."""

FAR = 100.0
"""Standard deviations within which a number enters the statistics from then on."""


def vector_names(obs: ObsSpec) -> tuple[str, ...]:
    """The observations that are vectors of numbers: no images, no choices, not false or true."""
    layouts = image_layouts(obs)
    return tuple(
        name
        for (name, _, dtype), categories in zip(obs.items(), obs.categories, strict=True)
        if name not in layouts and not categories and dtype not in ("int8", "bool")
    )


class NoNormaliser(nn.Module):
    """Observations as they are."""

    def forward(self, obs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """See :class:`Normaliser`: ``obs`` itself."""
        return obs

    def observe(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Nothing to learn."""


class Normaliser(nn.Module):
    """(x − mean) / √(variance + ε) of each element of the vector observations, clipped to ±5.

    Until two rows have been seen, numbers are only clipped. The statistics are buffers, so that they travel
    with the state dict; ``count``, ``mean`` and ``square`` are float64, ``shift`` and ``scale`` what follows
    from them. Only these two move to a device: rows come one at a time, and none shall wait for it.

    Once ``KNOWN`` rows were seen, a number enters the statistics as at most ``FAR`` deviations from the mean:
    it then adds less than FAR²/N to the variance, of which nothing is left as N grows, where 1e17 would make
    all others 0 for ever. A scale that has really changed is still learned, by a factor at each such row.
    D: elements of all vector observations.
    """

    count: Tensor  # [] rows seen
    mean: Tensor  # [D]
    square: Tensor  # [D] sum of squared deviations from the mean
    shift: Tensor  # [D] float32 mean
    scale: Tensor  # [D] float32 1/√(variance + ε)

    def __init__(self, obs: ObsSpec) -> None:
        super().__init__()
        self.names = vector_names(obs)
        shapes = {name: shape for name, shape, _ in obs.items()}
        self._shapes = [shapes[name] for name in self.names]
        self._sizes = [prod(shape) for shape in self._shapes]
        width = sum(self._sizes)
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("square", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    def forward(self, obs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """obs name -> [..., *shape] -> the same with vector observations as float32, others untouched."""
        result = dict(obs)
        shifts, scales = torch.split(self.shift, self._sizes), torch.split(self.scale, self._sizes)
        for name, shape, shift, scale in zip(self.names, self._shapes, shifts, scales, strict=True):
            deviation = obs[name].to(shift.dtype) - shift.view(shape)
            result[name] = deviation.mul_(scale.view(shape)).clamp_(-CLIP, CLIP)
        return result

    @torch.no_grad()
    def observe(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Take n rows into the statistics, name -> [n, *shape]; none is allowed.

        Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances
        (1979): δ = mean_new − mean, mean += δ n/(N + n), square += square_new + δ² N n/(N + n).
        """
        if not self.names or not len(rows[self.names[0]]):
            return
        parts = zip(self.names, self._sizes, strict=True)
        flat = np.concatenate([rows[name].reshape(-1, size).astype(np.float64) for name, size in parts], 1)
        new = flat[(np.abs(flat) < UNUSABLE).all(1)]
        n, before = len(new), float(self.count)
        if not n:
            return
        mean, square = self.mean.numpy(), self.square.numpy()  # views
        if before >= KNOWN:
            reach = FAR * np.sqrt(square / before + EPSILON)
            new = np.clip(new, mean - reach, mean + reach)
        own = new.mean(0)
        delta, share = own - mean, n / (before + n)
        square += np.square(new - own).sum(0) + np.square(delta) * (before * share)
        mean += delta * share
        self.count += n
        if before + n >= 2:
            scale = 1.0 / np.sqrt(square / (before + n) + EPSILON)
            for buffer, value in ((self.shift, mean), (self.scale, scale)):
                buffer.copy_(torch.from_numpy(value.astype(np.float32)), non_blocking=True)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Normaliser:
        """Move or convert, as ``to`` and its like do, all but the statistics."""
        statistics = {name: self._buffers[name] for name in ("count", "mean", "square")}
        super()._apply(fn, recurse)
        self._buffers.update(statistics)
        return self
