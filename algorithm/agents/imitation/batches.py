"""Sources of the batches of an update: the agent's own replay, demonstrations, or both."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from algorithm.core.data import SequenceBatch
from algorithm.keys.demonstrations import DemoConfig
from algorithm.replay.buffer import ReplayBuffer

Draw = Callable[[int], SequenceBatch]
"""Draws so many demonstrated windows."""


class OwnBatches:
    """Batches of the replay alone. own: number of the last one's first windows that are the replay's."""

    def __init__(self, replay: ReplayBuffer) -> None:
        self._replay, self.own = replay, replay.batch_size

    def sample(self) -> SequenceBatch | None:
        """Return a batch, or None while there are too few transitions."""
        return self._replay.sample()

    def move(self, step: int) -> None:
        """Set the share of demonstrations to that of an environment step: there are none."""


class ShownBatches:
    """Batches of demonstrations alone, of ``size`` windows."""

    own = 0

    def __init__(self, draw: Draw, size: int) -> None:
        self._draw, self._size = draw, size

    def sample(self) -> SequenceBatch:
        """Return demonstrated windows."""
        return self._draw(self._size)

    def move(self, step: int) -> None:
        """Do nothing: there is nothing else."""


class MixedBatches:
    """Batches with ⌊share · B⌋ demonstrated windows behind those of the replay (RLPD, arXiv 2302.02948).

    The replay draws the rest, by its own priorities; their weights are at most 1, that of a demonstrated
    window. Where batches are drawn ahead, a share that changes comes as many batches later.

    keys: share, and where it goes
    """

    def __init__(self, replay: ReplayBuffer, draw: Draw, keys: DemoConfig) -> None:
        self._replay, self._draw, self._keys = replay, draw, keys
        self._size = self.own = replay.batch_size
        self.move(0)

    def move(self, step: int) -> None:
        """Set the share, a line from ``share`` to ``share_end`` over ``share_until`` steps."""
        first, until = self._keys.share, self._keys.share_until
        last = first if self._keys.share_end is None else self._keys.share_end
        share = first + (last - first) * min(1.0, step / until) if until else first
        # The addend: 0.29 · 100 is below 29. At least one window is the agent's own.
        shown = min(int(share * self._size + 1e-9), self._size - 1)
        self._replay.batch_size = self._size - shown

    def sample(self) -> SequenceBatch | None:
        """Return windows of the replay, then demonstrated ones; None while the replay has too few."""
        own = self._replay.sample()
        if own is None:
            return None
        self.own = len(own.reward)
        return own if self.own == self._size else joined(own, self._draw(self._size - self.own))


Batches = OwnBatches | ShownBatches | MixedBatches
"""Sources of batches of a fixed number of windows."""


def joined(first: SequenceBatch, second: SequenceBatch) -> SequenceBatch:
    """Return the windows of both, each field where that of ``first`` is."""

    def both(one: Tensor, other: Tensor) -> Tensor:
        return torch.cat((one, other.to(one.device)))

    mine, theirs = vars(first), vars(second)
    fields = {name: both(value, theirs[name]) for name, value in mine.items() if name != "obs"}
    return SequenceBatch(
        obs={name: both(value, second.obs[name]) for name, value in first.obs.items()}, **fields
    )
