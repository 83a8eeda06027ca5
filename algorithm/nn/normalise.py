"""Running statistics of vector observations, to normalise them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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
"""Default bound of normalised numbers, in standard deviations."""

EPSILON = 1e-13
"""Smallest deviation, absolute and relative to the mean: float64's rounding errors are below it."""

UNUSABLE = 1e18
"""Size from which rewards are left out of statistics: the gradient overflows, and the update is skipped."""

FLAG = 1e36
"""Size from which observations are left out: some simulators mark missing values by float32's largest number.

In the statistics it would scale all other numbers to 0 permanently.
"""

KNOWN = 100
"""Number of rows after which the statistics clip outliers."""

WIDE = ("float64", "int32", "int64")
"""Types whose numbers float32 cannot represent."""

TOLD_APART = 1e3
"""Largest mean, in deviations, for which float32 resolves 1/10,000 of a deviation."""

FAR = 100.0
"""Number of standard deviations to which the statistics clip outliers."""


def vector_names(obs: ObsSpec) -> tuple[str, ...]:
    """Return the names of observations that are vectors of numbers: no images, choices or booleans."""
    layouts = image_layouts(obs)
    return tuple(
        name
        for (name, _, dtype), categories in zip(obs.items(), obs.categories, strict=True)
        if name not in layouts and not categories and dtype != "bool"
    )


def normalised_names(obs: ObsSpec) -> tuple[str, ...]:
    """Return the names that a :class:`Normaliser` normalises: vectors, and images of unknown range."""
    vectors, images = vector_names(obs), obs.images
    ranges = zip(obs.names, obs.ranges, strict=True)
    return tuple(name for name, span in ranges if name in vectors or (name in images and span is None))


class NoNormaliser(nn.Module):
    """Conversion of float64 observations to float32, without normalisation."""

    names: tuple[str, ...] = ()

    @override
    def forward(self, obs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return ``obs`` with float64 converted to the default dtype."""
        kind = torch.get_default_dtype()
        return {name: x.to(kind) if x.dtype == torch.float64 else x for name, x in obs.items()}

    def observe(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Do nothing: there are no statistics."""

    add = observe

    def commit_statistics(self) -> None:
        """Do nothing: nothing was added."""


class Normaliser(nn.Module):
    """Running normalisation: (x − mean) / √(variance + ε²) clipped to ±``clip``, ε by :data:`EPSILON`.

    Statistics are per element of vectors, and per channel of images whose range is unknown. The mean is
    subtracted before the conversion to float32 of types that float32 cannot represent, so that 1.7e9 ± 10
    becomes ±1.

    Before the second row, numbers are only clipped. The statistics are buffers and so part of the state
    dict: ``count``, ``mean`` and ``square`` are float64, ``shift`` and ``scale`` derived from them. Only
    these two move to a device, so that adding a row does not wait for it.

    After ``KNOWN`` rows, numbers are clipped to ``FAR`` deviations from the mean before they enter the
    statistics. An outlier then adds less than FAR²/N to the variance; unclipped, 1e17 would scale all other
    numbers to 0 for ever. If the scale really changes, the statistics follow within some observations; an
    element that was constant so far is not clipped.
    D: number of elements of all vectors, and of channels.
    """

    count: Tensor  # [] rows counted
    mean: Tensor  # [D] mean of the rows
    square: Tensor  # [D] sum of squared deviations from the mean
    shift: Tensor  # [D] float64 mean
    scale: Tensor  # [D] float32 1/√(variance + ε²)

    def __init__(self, obs: ObsSpec, clip: float = CLIP) -> None:
        super().__init__()
        self.clip = clip
        self.names, images = normalised_names(obs), obs.images
        observed = [each for each in obs.items() if each[0] in self.names]
        self.wide = {name: dtype for name, _, dtype in observed if dtype in WIDE}
        # Height and width of an image count as one number: its channels are the elements.
        self._pooled = {name: images.get(name, ())[:2] for name in self.names}
        self._shapes = [
            tuple(1 if axis in self._pooled[name] else side for axis, side in enumerate(shape))
            for name, shape, _ in observed
        ]
        self._sizes = [prod(shape) for shape in self._shapes]
        width = sum(self._sizes)
        self._added: list[Mapping[str, NDArray[Any]]] = []
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        for name in ("mean", "square", "shift"):
            self.register_buffer(name, torch.zeros(width, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(width))

    @override
    def forward(self, obs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Normalise the observations :attr:`names` of obs, name -> [..., *shape], to float32."""
        result, kind = dict(obs), self.scale.dtype
        wide = torch.split(self.shift, self._sizes)
        narrow, scales = torch.split(self.shift.to(kind), self._sizes), torch.split(self.scale, self._sizes)
        for at, (name, shape) in enumerate(zip(self.names, self._shapes, strict=True)):
            if name in self.wide:
                deviation = (obs[name].to(torch.float64) - wide[at].view(shape)).to(kind)
            else:
                deviation = obs[name].to(kind) - narrow[at].view(shape)
            result[name] = (deviation * scales[at].view(shape)).clamp(-self.clip, self.clip)
        return result

    def of(self, name: str) -> tuple[Tensor, Tensor]:
        """Return shift and scale of an observation, each in a shape that broadcasts to the observation's."""
        place = self.names.index(name)
        shift, scale = (
            torch.split(whole, self._sizes)[place].view(self._shapes[place])
            for whole in (self.shift, self.scale)
        )
        return shift, scale

    def beyond_float32(self) -> dict[str, str]:
        """Return name -> type of the observations whose deviations from the mean float32 cannot resolve."""
        lost = (self.square > 0) & (self.shift.abs().cpu() * self.scale.cpu() > TOLD_APART)
        named = zip(self.names, torch.split(lost, self._sizes), strict=True)
        return {name: self.wide[name] for name, lost_in in named if name in self.wide and lost_in.any()}

    def narrow(self, wide: Collection[str]) -> None:
        """Normalise all observations in float32, except for those in ``wide``; for an export."""
        self.wide = {name: dtype for name, dtype in self.wide.items() if name in wide}
        if not wide:
            self.shift = self.shift.to(self.scale.dtype)

    def add(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Keep n rows for :meth:`commit_statistics`; their arrays must not change before that."""
        self._added.append(rows)

    def commit_statistics(self) -> None:
        """Observe all added rows at once: a merge of a thousand agents' rows costs as much as that of one.

        The result does not depend on how many rows were added at a time.
        """
        if self._added:
            added, self._added = self._added, []
            self.observe({name: np.concatenate([rows[name] for rows in added]) for name in self.names})

    @override
    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Save the statistics with all rows that have been added."""
        self.commit_statistics()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    @torch.no_grad()
    def observe(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Add n rows to the statistics, name -> [n, *shape]; n may be 0.

        Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances
        (1979): δ = mean_new − mean, mean += δ n/(N + n), square += square_new + δ² N n/(N + n).
        """
        if not self.names or not len(rows[self.names[0]]):
            return
        means, inner = [], []
        for name, size in zip(self.names, self._sizes, strict=True):
            value, over = rows[name].astype(np.float64), tuple(axis + 1 for axis in self._pooled[name])
            means.append(value.mean(over).reshape(-1, size))
            inner.append(value.var(over).reshape(-1, size) if over else np.zeros_like(means[-1]))
        flat, within = np.concatenate(means, 1), np.concatenate(inner, 1)
        usable = (np.abs(flat) < FLAG).all(1)
        flat, within = flat[usable], within[usable]
        unclipped = max(0, KNOWN - int(self.count))
        for rows_of in (slice(unclipped), slice(unclipped, None)):
            if len(flat[rows_of]):
                self._merge(flat[rows_of], within[rows_of])

    def _merge(self, new: Double, within: Double) -> None:
        """Add rows [n, D] to the statistics; within: [n, D] variances inside images, else 0."""
        n, before = len(new), float(self.count)
        mean, square = self.mean.numpy(), self.square.numpy()  # views
        if not before:
            mean[:] = new[0]  # so that a constant element is normalised to exactly 0
        elif before >= KNOWN:
            reach = np.where(square > 0.0, FAR * self._deviation(before), np.inf)
            new = np.clip(new, mean - reach, mean + reach)
        off = new - mean
        delta, share = off.mean(0), n / (before + n)
        square += np.square(off - delta).sum(0) + within.sum(0) + np.square(delta) * (before * share)
        mean += delta * share
        self.count += n
        if before + n >= 2:
            for buffer, value in ((self.shift, mean), (self.scale, 1.0 / self._deviation(before + n))):
                buffer.copy_(torch.from_numpy(value).to(buffer.dtype), non_blocking=True)

    def _deviation(self, count: float) -> Double:
        """Return √(variance + ε²) [D] of ``count`` rows."""
        mean, square = self.mean.numpy(), self.square.numpy()
        deviation: Double = np.sqrt(square / count + np.square(EPSILON * np.maximum(1.0, np.abs(mean))))
        return deviation

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Normaliser:
        """Move or convert all buffers except for the statistics, as ``to`` does."""
        statistics = {name: self._buffers[name] for name in ("count", "mean", "square")}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch has not annotated it
        self._buffers.update(statistics)
        return self
