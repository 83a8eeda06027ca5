"""Running statistics of vector observations, to normalise them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.data import Double
from algorithm.core.spec import ObsSpec
from algorithm.nn.layers.images import image_layouts

CLIP = 5.0
"""Bound of normalised numbers, in standard deviations, unless a family has another one."""

EPSILON = 1e-8
"""Addend of the variance, so that an element that never changes stays 0."""

UNUSABLE = 1e18
"""Limit of numbers in the statistics: one beyond it would make all others 0 permanently.

The gradient of a larger reward overflows, and its update is skipped.
"""

KNOWN = 100
"""Number of rows after which the statistics clip numbers far from all others."""

FAR = 100.0
"""Standard deviations to which a number is clipped in the statistics from then on."""


def vector_names(obs: ObsSpec) -> tuple[str, ...]:
    """Return the observations that are vectors of numbers: no images, no choices, not false or true."""
    layouts = image_layouts(obs)
    return tuple(
        name
        for (name, _, dtype), categories in zip(obs.items(), obs.categories, strict=True)
        if name not in layouts and not categories and dtype not in ("int8", "bool")
    )


class NoNormaliser(nn.Module):
    """Absent normalisation: observations as they are."""

    names: tuple[str, ...] = ()

    @override
    def forward(self, obs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return ``obs`` itself."""
        return obs

    def observe(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: there are no statistics."""

    add = observe

    def settle(self) -> None:
        """Do nothing: nothing was added."""


class Normaliser(nn.Module):
    """Running normalisation of the vector observations, (x − mean) / √(variance + ε) clipped to ±``clip``.

    Before the second row, numbers are only clipped. The statistics are buffers and so part of the state
    dict: ``count``, ``mean`` and ``square`` are float64, ``shift`` and ``scale`` derived from them. Only
    these two move to a device: rows come one at a time, and none shall wait for it.

    After ``KNOWN`` rows, a number enters the statistics as at most ``FAR`` deviations from the mean. It then
    adds less than FAR²/N to the variance, which vanishes as N grows; 1e17 would make all others 0 for ever.
    A scale that has really changed is still learned, by a factor at each observation of some.
    D: elements of all vector observations.
    """

    count: Tensor  # [] rows counted
    mean: Tensor  # [D]
    square: Tensor  # [D] sum of squared deviations from the mean
    shift: Tensor  # [D] float32 mean
    scale: Tensor  # [D] float32 1/√(variance + ε)

    def __init__(self, obs: ObsSpec, clip: float = CLIP) -> None:
        super().__init__()
        self._clip = clip
        self.names = vector_names(obs)
        shapes = {name: shape for name, shape, _ in obs.items()}
        self._shapes = [shapes[name] for name in self.names]
        self._sizes = [prod(shape) for shape in self._shapes]
        width = sum(self._sizes)
        self._added: list[Mapping[str, NDArray[Any]]] = []
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("square", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    @override
    def forward(self, obs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Normalise obs, name -> [..., *shape]: vector observations as float32, others untouched."""
        result = dict(obs)
        shifts, scales = torch.split(self.shift, self._sizes), torch.split(self.scale, self._sizes)
        for name, shape, shift, scale in zip(self.names, self._shapes, shifts, scales, strict=True):
            deviation = obs[name].to(shift.dtype) - shift.view(shape)
            result[name] = (deviation * scale.view(shape)).clamp(-self._clip, self._clip)
        return result

    def of(self, name: str) -> tuple[Tensor, Tensor]:
        """Return shift and scale of a vector observation, each of its shape."""
        place = self.names.index(name)
        shift, scale = (
            torch.split(whole, self._sizes)[place].view(self._shapes[place])
            for whole in (self.shift, self.scale)
        )
        return shift, scale

    def add(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Keep n rows for :meth:`settle`, until which their arrays must not change."""
        self._added.append(rows)

    def settle(self) -> None:
        """Observe all added rows at once: one merge for a thousand agents costs what it costs for one.

        The result does not depend on how many were added at a time.
        """
        if self._added:
            added, self._added = self._added, []
            self.observe({name: np.concatenate([rows[name] for rows in added]) for name in self.names})

    @override
    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Save all that has been added as well."""
        self.settle()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    @torch.no_grad()
    def observe(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Take n rows into the statistics, name -> [n, *shape]; n may be 0.

        Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances
        (1979): δ = mean_new − mean, mean += δ n/(N + n), square += square_new + δ² N n/(N + n).
        """
        if not self.names or not len(rows[self.names[0]]):
            return
        parts = zip(self.names, self._sizes, strict=True)
        flat = np.concatenate([rows[name].reshape(-1, size).astype(np.float64) for name, size in parts], 1)
        new = flat[(np.abs(flat) < UNUSABLE).all(1)]
        unclipped = max(0, KNOWN - int(self.count))
        for part in (new[:unclipped], new[unclipped:]):
            if len(part):
                self._merge(part)

    def _merge(self, new: Double) -> None:
        """Take rows [n, D] into the statistics."""
        n, before = len(new), float(self.count)
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

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Normaliser:
        """Move or convert, as ``to`` and its like do, all but the statistics."""
        statistics = {name: self._buffers[name] for name in ("count", "mean", "square")}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch has not annotated it
        self._buffers.update(statistics)
        return self
