"""Rows of each episode in their order, to find any of them at once."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from itertools import chain

import numpy as np

from algorithm.core.data import Int
from algorithm.replay.storage import PREV, STEP, Storage

_FEW = 1024  # chains that are never swept


@dataclass
class Chain:
    """Consecutive rows of one episode; some of the first ones may have been overwritten.

    first: step in the episode of the first of them; rows: ids, ascending
    """

    first: int
    rows: array[int]

    def since(self, oldest: int) -> int:
        """Return the step of the first row that is alive, the smallest living id being ``oldest``."""
        return self.first + bisect_left(self.rows, oldest)

    @property
    def last(self) -> int:
        """Step in the episode of the last row."""
        return self.first + len(self.rows) - 1


class Chains:
    """The chain of every living row of a storage: 16 bytes a row beside those of the storage.

    Links lead from row to row only; to the middle of an episode they take as many steps as there are rows.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._number = np.full(storage.capacity, -1, np.int64)  # of the chain, by slot
        self._chains: dict[int, Chain] = {}
        self._next = 0
        self._sweep_at = _FEW

    def of(self, slots: Int) -> list[Chain]:
        """Return the chains of living rows in these slots [n]."""
        return [self._chains[number] for number in self._number[slots].tolist()]

    def added(self, ids: Int, heads: Int) -> None:
        """Take in new rows; within an episode they come in their order, ``heads`` after ``ids``."""
        storage, capacity, oldest = self._storage, self._storage.capacity, self._storage.oldest
        for row in chain(ids.tolist(), heads.tolist()):
            slot = row % capacity
            known = self._chains.get(self._number.item(slot))
            if known is not None and known.rows[-1] == row:
                continue  # the head of its stream until now
            previous = row - storage.links.item(slot, PREV)
            if oldest <= previous < row:
                number = self._number.item(previous % capacity)
                self._chains[number].rows.append(row)
                self._trim(self._chains[number])
            else:
                number = self._next
                self._next += 1
                self._chains[number] = Chain(storage.links.item(slot, STEP), array("q", [row]))
            self._number[slot] = number
        if len(self._chains) > self._sweep_at:
            self._sweep()

    def load(self) -> None:
        """Begin anew with all living rows."""
        self._chains.clear()
        self._number[:] = -1
        rows = np.arange(self._storage.oldest, self._storage.next_id)
        self.added(rows, rows[:0])

    def _trim(self, one: Chain) -> None:
        """Remove overwritten rows of an episode that may never end."""
        if len(one.rows) > 2 * self._storage.capacity:
            dead = one.since(self._storage.oldest) - one.first
            del one.rows[:dead]
            one.first += dead

    def _sweep(self) -> None:
        """Remove chains without a living row, at most every time that their number has doubled."""
        oldest = self._storage.oldest
        self._chains = {n: one for n, one in self._chains.items() if one.rows[-1] >= oldest}
        self._sweep_at = max(_FEW, 2 * len(self._chains))
