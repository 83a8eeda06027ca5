"""The seam between the windows that a replay draws and the batch that an update gets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from algorithm.core.data import Int, SequenceBatch
from algorithm.replay.storage import Storage


class Marks(NamedTuple):
    """Windows of a batch that are changed, and the row that each of them takes something from."""

    windows: Int  # [m] their numbers in the batch, ascending
    rows: Int  # [m] ids of living rows


NO_MARKS = Marks(np.zeros(0, np.int64), np.zeros(0, np.int64))


class Relabel:
    """A change of drawn windows on their way into an update. By itself it changes nothing.

    What is random in it is drawn by the thread that samples, from the replay's generator, which a checkpoint
    holds. Windows may be read, and changed, by other threads.

    text: of it for the start screen, empty where there is nothing to say; notice: what a person should know
    """

    def __init__(self, text: str = "", notice: str = "") -> None:
        self.text = text
        self.notice = notice

    def attach(self, storage: Storage, learn: int) -> None:
        """Attach to this storage; called once, by the buffer that owns both. learn: T of its windows."""

    def added(self, ids: Int, heads: Int) -> None:
        """Process new transitions ``ids`` [L], and ``heads`` [n], the newest rows of their n streams."""

    def loaded(self) -> None:
        """Process all rows anew: the storage has been loaded."""

    def draw(self, anchors: Int, places: Int, rng: np.random.Generator) -> Marks:
        """Return which of the windows change.

        anchors: [B] slots of transitions; places: [B] of these among the learned positions
        """
        return NO_MARKS

    def apply(self, batch: SequenceBatch, marks: Marks) -> SequenceBatch:
        """Return the batch of these windows with the change made; it shares no memory with the storage."""
        return batch
