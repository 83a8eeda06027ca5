"""What every copy of an environment has done since its episode began, so that it can be done again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from algorithm.data import Float

_CHUNK = 512  # steps of all copies that are written before they are sorted by copy


class _Episode(NamedTuple):
    """The actions of one episode: whole pieces, then rows ``first`` to ``end`` of the chunk."""

    episode: int
    pieces: list[Float]  # [L, A] each
    first: int
    end: int


class Trail:
    """Flat actions and sum of rewards of the open episode of each of ``n`` copies.

    width: A, of a flat action

    A step costs the copy of its actions [N, A] and rewards [N] into a chunk. When that is full, what still
    belongs to an open episode is cut out of it, so that memory is what the open episodes are long, whichever
    copy is behind. Of an episode that has just ended the actions can still be asked for.
    """

    def __init__(self, n: int, width: int) -> None:
        self._chunk: Float = np.zeros((_CHUNK, n, width), np.float32)
        self._reward: Float = np.zeros((_CHUNK, n), np.float32)
        self._next = 0  # row of the chunk
        self._pieces: list[list[Float]] = [[] for _ in range(n)]
        self._sum = [0.0] * n  # of the rewards that came with the pieces
        self._first = [0] * n  # row of the chunk where the rest of the episode begins
        self._ended: dict[int, _Episode] = {}  # episodes that ended since the last step began

    def record(self, action: Float) -> None:
        """All copies act, [N, A]."""
        if self._next == len(self._chunk):
            self._sort()
        if self._ended:
            self._ended = {}
        self._chunk[self._next] = action
        self._next += 1

    def earn(self, reward: Float) -> None:
        """What that brought, [N]."""
        self._reward[self._next - 1] = reward

    def begin(self, copy: int, episode: int) -> None:
        """The episode of that number is over. Of several since the last step the first one is kept."""
        self._ended.setdefault(copy, _Episode(episode, self._pieces[copy], self._first[copy], self._next))
        self._pieces[copy], self._sum[copy], self._first[copy] = [], 0.0, self._next

    def repeat(self, copy: int, actions: Float, total: float) -> None:
        """The copy has just begun its episode anew, acted like this, [L, A], and earned so much."""
        self._ended.pop(copy, None)
        self._pieces[copy], self._sum[copy], self._first[copy] = [actions], total, self._next

    def forget(self, copy: int) -> None:
        """Nobody will ask for the episode of the copy that has just ended."""
        self._ended.pop(copy, None)

    def length(self, copy: int) -> int:
        """Steps of the open episode."""
        return sum(map(len, self._pieces[copy])) + self._next - self._first[copy]

    def actions(self, copy: int) -> Float:
        """Those of the open episode, [L, A]."""
        return self._joined(copy, _Episode(0, self._pieces[copy], self._first[copy], self._next))

    def total(self, copy: int) -> float:
        """The sum of its rewards, added up one after the other in double precision."""
        earned = self._reward[self._first[copy] : self._next, copy].astype(np.float64)
        return float(np.add.accumulate(np.append(self._sum[copy], earned))[-1])

    def ended(self, copy: int) -> tuple[int, Float] | None:
        """Number and actions [L, A] of the episode that ended with the last step; None if none did."""
        piece = self._ended.get(copy)
        return None if piece is None else (piece.episode, self._joined(copy, piece))

    def _joined(self, copy: int, piece: _Episode) -> Float:
        return np.concatenate((*piece.pieces, self._chunk[piece.first : piece.end, copy]))

    def _sort(self) -> None:
        for copy, first in enumerate(self._first):
            if first < len(self._chunk):
                self._sum[copy] = self.total(copy)
                self._pieces[copy].append(self._chunk[first:, copy].copy())
            self._first[copy] = 0
        self._next = 0
