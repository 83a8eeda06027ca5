"""Sources of the batches of an update: the agent's own replay, demonstrations, or both.

Demonstrations grow by a person's steps during training (HIL-SERL, arXiv 2410.21845).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from algorithm.agents.demonstrations import DemoStore
from algorithm.core.data import Int, SequenceBatch
from algorithm.replay.buffer import ReplayBuffer

Draw = Callable[[int], SequenceBatch | None]
"""Function that draws a number of demonstrated windows, or None while there are none."""


class ReplayBatches:
    """Batches of the replay alone.

    num_replayed: number of the last batch's first windows that are of the replay
    """

    def __init__(self, replay: ReplayBuffer) -> None:
        self._replay, self.num_replayed = replay, replay.batch_size

    def sample(self) -> SequenceBatch | None:
        """Return a batch, or None while there are too few transitions."""
        return self._replay.sample()


class DemoBatches:
    """Batches of demonstrations alone, of ``size`` windows."""

    num_replayed = 0

    def __init__(self, draw: Draw, size: int) -> None:
        self._draw, self._size = draw, size

    def sample(self) -> SequenceBatch | None:
        """Return a batch of demonstrated windows."""
        return self._draw(self._size)


class MixedBatches:
    """Batches of windows of the replay, then ⌊share · B⌋ demonstrated ones (RLPD, arXiv 2302.02948).

    The replay draws by its own priorities; its weights are at most 1, that of a demonstrated window.
    """

    def __init__(self, replay: ReplayBuffer, draw: Draw, share: float) -> None:
        self._replay, self._draw = replay, draw
        # 1e-9, because 0.29 · 100 is below 29 in floating point. At least one window is of the replay.
        self._shown = min(int(share * replay.batch_size + 1e-9), replay.batch_size - 1)
        self.num_replayed = replay.batch_size = replay.batch_size - self._shown

    def sample(self) -> SequenceBatch | None:
        """Return windows of the replay, then demonstrated ones; None while the replay has too few.

        While there is no demonstration, the batch has the windows of the replay alone.
        """
        replayed = self._replay.sample()
        if replayed is None:
            return None
        demonstrated = self._draw(self._shown)
        return replayed if demonstrated is None else joined(replayed, demonstrated)


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


class Corrections:
    """Demonstrated windows, drawn from recordings and from a person's steps in the replay, each step alike.

    It has no state: which steps are a person's is in the replay. A step is gone with its row.

    replay:    of the agent
    generator: of the update that uses the windows
    store:     of recordings; None if there are none
    """

    def __init__(
        self, replay: ReplayBuffer, generator: torch.Generator, store: DemoStore | None = None
    ) -> None:
        self._replay, self._generator, self._store = replay, generator, store
        self._recorded = store.num_steps if store else 0
        self._ids: Int = np.empty(0, np.int64)
        self._since = 0  # what is a person's is known of the ids below

    def draw(self, n: int) -> SequenceBatch | None:
        """Return n windows, or None while there are no demonstrations."""
        self._update()
        steps = self._recorded + len(self._ids)
        if not steps:
            return None
        chosen = self._random(steps, n)
        ids = self._ids[chosen[chosen >= self._recorded] - self._recorded]
        recorded = None
        if self._store and len(ids) < n:
            recorded = self._store.draw(n - len(ids), self._generator)
        if not len(ids):
            return recorded
        windows = self._replay.windows(ids, self._random(self._replay.learn, len(ids)))
        corrections = replace(windows, ids=torch.full_like(windows.ids, -1))
        return corrections if recorded is None else joined(recorded, corrections)

    def _update(self) -> None:
        """Add the ids of new steps, and remove those that were overwritten."""
        known = self._ids[(self._ids < self._since) & self._replay.alive(self._ids)]
        new, self._since = self._replay.by_person(self._since)
        self._ids = np.concatenate((known, new))

    def _random(self, high: int, n: int) -> Int:
        device = self._generator.device
        return torch.randint(high, (n,), generator=self._generator, device=device).cpu().numpy()
