"""Sources of the batches of an update: the agent's own replay, demonstrations, or both."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from algorithm.core.data import SequenceBatch
from algorithm.keys.demonstrations import DemoConfig
from algorithm.replay.buffer import ReplayBuffer

Draw = Callable[[int], SequenceBatch]
"""Function that draws a number of demonstrated windows."""


class ReplayBatches:
    """Batches of the replay alone.

    num_replayed: number of the last batch's first windows that are of the replay
    """

    def __init__(self, replay: ReplayBuffer) -> None:
        self._replay, self.num_replayed = replay, replay.batch_size

    def sample(self) -> SequenceBatch | None:
        """Return a batch, or None while there are too few transitions."""
        return self._replay.sample()

    def move(self, step: int) -> None:
        """Do nothing: there are no demonstrations whose share could change."""


class DemoBatches:
    """Batches of demonstrations alone, of ``size`` windows."""

    num_replayed = 0

    def __init__(self, draw: Draw, size: int) -> None:
        self._draw, self._size = draw, size

    def sample(self) -> SequenceBatch:
        """Return a batch of demonstrated windows."""
        return self._draw(self._size)

    def move(self, step: int) -> None:
        """Do nothing: the share of demonstrations is always 1."""


class MixedBatches:
    """Batches of windows of the replay, then ⌊share · B⌋ demonstrated ones (RLPD, arXiv 2302.02948).

    The replay draws by its own priorities; its weights are at most 1, that of a demonstrated window. If
    batches are drawn ahead, a change of the share takes effect as many batches later.

    keys: share, and how it changes
    """

    def __init__(self, replay: ReplayBuffer, draw: Draw, keys: DemoConfig) -> None:
        self._replay, self._draw, self._keys = replay, draw, keys
        self._size = self.num_replayed = replay.batch_size
        self.move(0)

    def move(self, step: int) -> None:
        """Set the share at an environment step: linear from ``share`` to ``share_end`` at ``share_until``."""
        first, until = self._keys.share, self._keys.share_until
        last = first if self._keys.share_end is None else self._keys.share_end
        share = first + (last - first) * min(1.0, step / until) if until else first
        # 1e-9, because 0.29 · 100 is below 29 in floating point. At least one window is of the replay.
        shown = min(int(share * self._size + 1e-9), self._size - 1)
        self._replay.batch_size = self._size - shown

    def sample(self) -> SequenceBatch | None:
        """Return windows of the replay, then demonstrated ones; None while the replay has too few."""
        replayed = self._replay.sample()
        if replayed is None:
            return None
        self.num_replayed = len(replayed.reward)
        return joined(replayed, self._draw(n)) if (n := self._size - self.num_replayed) else replayed


Batches = ReplayBatches | DemoBatches | MixedBatches
"""Sources of batches of a fixed number of windows."""


def joined(first: SequenceBatch, second: SequenceBatch) -> SequenceBatch:
    """Return a batch of the windows of both; each field is on the device of ``first``'s."""

    def both(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat((x, y.to(x.device)))

    mine, theirs = vars(first), vars(second)
    fields = {name: both(value, theirs[name]) for name, value in mine.items() if name != "obs"}
    return SequenceBatch(
        obs={name: both(value, second.obs[name]) for name, value in first.obs.items()}, **fields
    )
