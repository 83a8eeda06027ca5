"""Records of a replay, one structured row each, and the list of those already saved.

Arrays are passed in chunks of a few megabytes, so that saving and loading need little memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithm.core.data import Array, Int
from algorithm.replay.layout import Layout

Records = NDArray[Any]
"""Structured: ``id`` and a column for each matrix."""

CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True)
class ArrayChunks:
    """Array in chunks that follow one another along its first axis, for one iteration.

    dtype, shape: of the whole
    chunks:       each is valid until the next one is read
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunks: Iterable[Array]

    @classmethod
    def of(cls, array: Array) -> ArrayChunks:
        """Return one chunk, or none of an empty array."""
        return cls(array.dtype, array.shape, [array] if array.size else [])


@dataclass(frozen=True)
class SegmentFile:
    """Rows of a replay in a file.

    file:    absolute; never written to again
    rows:    their number
    last_id: the largest of their ids; once that is overwritten, the file is of no use
    nbytes, sha256: of the file
    """

    file: Path
    rows: int
    last_id: int
    nbytes: int
    sha256: str


class Saved:
    """Saved rows of a ring. A row that changes afterwards is touched: it is saved once more."""

    def __init__(self) -> None:
        self.parts: tuple[SegmentFile, ...] = ()
        self._end = 0  # ids from here on have never been saved
        self._touched: list[int] = []
        self._refreshed = False

    @property
    def carries_differ(self) -> bool:
        """True if saved rows may have other carries by now than their files."""
        return self._refreshed

    def touch(self, *ids: int) -> None:
        """Mark the rows ``ids`` before a change."""
        end = self._end
        self._touched += [id_ for id_ in ids if id_ < end]

    def touch_carries(self) -> None:
        """Mark the carries of all rows before a change of any."""
        self._refreshed |= self._end > 0

    def mark(self, parts: tuple[SegmentFile, ...], next_id: int) -> None:
        """Mark all rows below ``next_id`` as saved in ``parts``, but for refreshed carries."""
        self.parts, self._end = parts, next_id
        self._touched.clear()

    def forget(self, *, refreshed: bool = False) -> None:
        """Mark all rows as unsaved; the next saved ones have old carries if ``refreshed``."""
        self.parts, self._end, self._refreshed = (), 0, refreshed
        self._touched.clear()

    def unsaved(self, oldest: int, next_id: int) -> tuple[Int, int]:
        """Return the ids of the touched living rows, ascending, and the first of the new ones."""
        touched = np.unique(np.array(self._touched, np.int64))
        return touched[touched >= oldest], min(max(self._end, oldest), next_id)


def record_type(layout: Layout) -> np.dtype[Any]:
    """Return the type of a row's record: its id and a column for each matrix that has any width."""
    columns = [
        (name, np.dtype(kind).newbyteorder("<").str, (width,))
        for name, (width, kind) in layout.matrices.items()
        if width
    ]
    return np.dtype([("id", "<i8"), *columns])


def id_ranges(first: int, end: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield first … end − 1 in ranges (first, number) of at most :data:`CHUNK_BYTES` of rows each."""
    step = max(1, CHUNK_BYTES // max(1, row_bytes))
    for start in range(first, end, step):
        yield start, min(step, end - start)
