"""A person's steps during training as demonstrations (HIL-SERL, arXiv 2410.21845)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from algorithm.agents.demonstrations import DemoStore
from algorithm.agents.imitation.batches import joined
from algorithm.core.data import Int, SequenceBatch
from algorithm.replay.buffer import ReplayBuffer


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
