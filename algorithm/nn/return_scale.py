"""Rewards on one scale, whatever the unit of a task: divided by the spread of the discounted returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from algorithm.data import Segment

LARGEST = 5.0
"""The largest return seen so far is scaled to at most this."""

SMALLEST = 1e-8
"""Below this a return is rounding; nothing is divided by it."""

UNUSABLE = 1e18
"""A return as large as this is left out: the gradient of an update that meets its reward overflows, and such
an update is skipped, whereas in the statistics it would silence all other rewards permanently."""


class OpenReturn(NamedTuple):
    """The running discounted return of a stream."""

    next_step: int  # in the episode
    value: float


class NoReturnScale(nn.Module):
    """Rewards as they are."""

    factor = 1.0

    def observe(self, segment: Segment) -> None:
        """Nothing to learn."""

    def metrics(self) -> dict[str, Tensor]:
        """Nothing to log."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """No state."""
        return {}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """No state."""


class ReturnScale(nn.Module):
    """A factor on rewards: 1/max(σ_G, max |G|/5), of the discounted returns G so far.

    G ← γ G + r runs along each stream and is 0 at an episode's start and after a gap. σ_G is the standard
    deviation of every G since the start. The bound by the largest |G| keeps a rare large return, such as
    that of a goal, at order one (arXiv 2502.15280, section 4.3). The factor is 1 before a return differs
    from 0. The statistics are buffers in double precision and travel with the state dict; the open returns
    are no weights and have :meth:`tensors`.

    gamma: γ in [0, 1]
    """

    count: Tensor  # [] returns seen
    mean: Tensor  # []
    square: Tensor  # [] sum of squared deviations from the mean
    largest: Tensor  # [] |G|
    factor: Tensor  # [] float32, what follows from them

    def __init__(self, gamma: float) -> None:
        super().__init__()
        self._gamma = gamma
        self._open: dict[int, OpenReturn] = {}
        for name in ("count", "mean", "square", "largest"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))
        self.register_buffer("factor", torch.ones(()))

    @torch.no_grad()
    def observe(self, segment: Segment) -> None:
        """Take the rewards of new transitions into the statistics.

        Portions are merged as by Chan, Golub and LeVeque (1979), so that it does not matter how many
        transitions come at once.
        """
        returns = self._returns(segment)
        if not len(returns):
            return
        count, mean, square = float(self.count), float(self.mean), float(self.square)
        n, own = len(returns), float(returns.mean())
        delta, share = own - mean, n / (count + n)
        square += float(np.square(returns - own).sum()) + delta * delta * count * share
        count, mean = count + n, mean + delta * share
        largest = max(float(self.largest), float(np.abs(returns).max()))
        for buffer, value in zip(
            (self.count, self.mean, self.square, self.largest), (count, mean, square, largest), strict=True
        ):
            buffer.fill_(value)
        spread = max((square / count) ** 0.5, largest / LARGEST)
        if spread > SMALLEST:
            self.factor.fill_(1.0 / spread)

    def _returns(self, segment: Segment) -> np.ndarray:
        """G after each transition of the segment that has a usable one, float64."""
        stream, start = segment.stream, segment.start_step
        before = self._open.get(stream)
        value = before.value if before is not None and before.next_step == start > 0 else 0.0
        returns = []
        for reward in segment.reward.tolist():
            value = self._gamma * value + reward
            if abs(value) < UNUSABLE:
                returns.append(value)
            else:
                value = 0.0
        if segment.terminated[-1] or segment.truncated[-1]:
            self._open.pop(stream, None)
        else:
            self._open[stream] = OpenReturn(start + segment.length, value)
        return np.array(returns)

    def metrics(self) -> dict[str, Tensor]:
        """What rewards are divided by."""
        return {"value/return_scale": 1.0 / self.factor}

    def tensors(self) -> dict[str, Tensor]:
        """The open returns of n streams, oldest first: ``stream`` and ``step`` [n] int64, ``value`` [n]."""
        steps = [one.next_step for one in self._open.values()]
        values = [one.value for one in self._open.values()]
        return {
            "stream": torch.tensor(list(self._open), dtype=torch.int64),
            "step": torch.tensor(steps, dtype=torch.int64),
            "value": torch.tensor(values, dtype=torch.float64),
        }

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what :meth:`tensors` gave. Raises KeyError if something is missing."""
        rows = zip(*(tensors[name].tolist() for name in ("stream", "step", "value")), strict=True)
        self._open = {stream: OpenReturn(step, value) for stream, step, value in rows}
