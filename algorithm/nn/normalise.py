"""Running statistics: of vector observations, to normalise them, and of returns, to scale rewards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from algorithm.core.data import Rewarded
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

LARGEST = 5.0
"""Bound of the largest return so far, after scaling."""

SMALLEST = 1e-8
"""Smallest divisor of rewards: a return below it is rounding."""

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


class Normaliser(nn.Module):
    """Running normalisation of the vector observations, (x − mean) / √(variance + ε) clipped to ±``clip``.

    Before the second row, numbers are only clipped. The statistics are buffers and so part of the state
    dict: ``count``, ``mean`` and ``square`` are float64, ``shift`` and ``scale`` derived from them. Only
    these two move to a device: rows come one at a time, and none shall wait for it.

    After ``KNOWN`` rows, a number enters the statistics as at most ``FAR`` deviations from the mean. It then
    adds less than FAR²/N to the variance, which vanishes as N grows; 1e17 would make all others 0 for ever.
    A scale that has really changed is still learned, by a factor at each such row.
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

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Normaliser:
        """Move or convert, as ``to`` and its like do, all but the statistics."""
        statistics = {name: self._buffers[name] for name in ("count", "mean", "square")}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch has not annotated it
        self._buffers.update(statistics)
        return self


class OpenReturn(NamedTuple):
    """Running discounted return of a stream."""

    next_step: int  # in the episode
    value: float


class NoReturnScale:
    """Absent scaling: rewards as they are."""

    factor = scale = 1.0

    def observe(self, new: Rewarded) -> None:
        """Do nothing: there are no statistics."""

    def close(self, stream: int) -> None:
        """Do nothing: no return is open."""

    def metrics(self) -> dict[str, Tensor]:
        """Return nothing to log."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Return no state."""
        return {}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Do nothing: there is no state."""

    def roll_back(self, tensors: Mapping[str, Tensor]) -> None:
        """Do nothing: there is no state."""


class ReturnScale:
    """Factor on rewards: 1/max(σ_G, max |G|/5), of the discounted returns G so far.

    G ← γ G + r runs along each stream and is 0 at an episode's start and after a gap. σ_G is the standard
    deviation of every G since the start. The bound by the largest |G| keeps a rare large return, such as
    that of a goal, at order one (arXiv 2502.15280, section 4.3). The factor is 1 before a return differs
    from 0. The statistics are plain numbers, so that no transition waits for a device.

    gamma:   γ in [0, 1]
    count:   returns so far
    mean:    of these returns
    square:  sum of their squared deviations from the mean
    largest: the largest |G|
    factor:  of rewards, from the four above
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._open: dict[int, OpenReturn] = {}
        self.count = self.mean = self.square = self.largest = 0.0
        self.factor = 1.0
        # Of one number without dimensions dynamo would begin its analysis anew.
        self._scale = torch.ones(1, dtype=torch.float64)

    @property
    def scale(self) -> Tensor:
        """The factor as a tensor [], float64, which updates read."""
        return self._scale[0]

    def observe(self, new: Rewarded) -> None:
        """Take the rewards of new transitions into the statistics.

        One return at a time (Welford, 1962): most come alone, and it does not matter how many come at once.
        """
        for stream, start, rewards, ended in new.rewards():
            self._follow(stream, start, rewards, ended=ended)
        self._set_factor()

    def close(self, stream: int) -> None:
        """End the stream's episode here; of one that goes on, the next return is its reward alone."""
        self._open.pop(stream, None)

    def _set_factor(self) -> None:
        spread = max((self.square / self.count) ** 0.5, self.largest / LARGEST) if self.count else 0.0
        self.factor = 1.0 / spread if spread > SMALLEST else 1.0
        self._scale.fill_(self.factor)

    def _follow(self, stream: int, start: int, rewards: list[float], *, ended: bool) -> None:
        """Take G after each of the stream's ``rewards`` from step ``start`` on, where it is usable."""
        before = self._open.get(stream)
        value = before.value if before is not None and before.next_step == start > 0 else 0.0
        for reward in rewards:
            value = self._gamma * value + reward
            if abs(value) < UNUSABLE:
                self._count(value)
            else:
                value = 0.0
        if ended:
            self._open.pop(stream, None)
        else:
            self._open[stream] = OpenReturn(start + len(rewards), value)

    def _count(self, value: float) -> None:
        delta, share = value - self.mean, 1.0 / (self.count + 1.0)
        self.square += delta * delta * self.count * share
        self.mean += delta * share
        self.count += 1.0
        self.largest = max(self.largest, abs(value))

    def metrics(self) -> dict[str, Tensor]:
        """Return the divisor of rewards."""
        return {"value/return_scale": self.scale.reciprocal().float()}

    def tensors(self) -> dict[str, Tensor]:
        """Return ``statistics`` [4] float64: count, mean, square, largest.

        With the open returns of n streams, oldest first: ``stream`` and ``step`` [n] int64, ``value`` [n].
        """
        steps = [one.next_step for one in self._open.values()]
        values = [one.value for one in self._open.values()]
        statistics = [self.count, self.mean, self.square, self.largest]
        return {
            "statistics": torch.tensor(statistics, dtype=torch.float64),
            "stream": torch.tensor(list(self._open), dtype=torch.int64),
            "step": torch.tensor(steps, dtype=torch.int64),
            "value": torch.tensor(values, dtype=torch.float64),
        }

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state of :meth:`tensors`. Raises KeyError if something is missing."""
        rows = zip(*(tensors[name].tolist() for name in ("stream", "step", "value")), strict=True)
        self._open = {stream: OpenReturn(step, value) for stream, step, value in rows}
        self.roll_back(tensors)

    def roll_back(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the statistics only: episodes go on. Raises KeyError if they are missing."""
        self.count, self.mean, self.square, self.largest = tensors["statistics"].tolist()
        self._set_factor()
