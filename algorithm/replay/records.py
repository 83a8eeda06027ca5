"""A replay as records, one structured row each, and which of them stand in files already.

Arrays are handed over in chunks of a few megabytes, so that saving and loading need little memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithm.data import Array, Int
from algorithm.replay.layout import Layout

Records = NDArray[Any]
"""Structured: ``id`` and a column for each matrix."""

CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True)
class ArrayChunks:
    """An array in chunks that follow one another along its first axis. It can be gone through once.

    dtype, shape: of the whole
    chunks:       each is good until the next one is asked for
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunks: Iterable[Array]

    @classmethod
    def of(cls, array: Array) -> ArrayChunks:
        """One chunk, or none of an empty array."""
        return cls(array.dtype, array.shape, [array] if array.size else [])


@dataclass(frozen=True)
class SegmentFile:
    """Rows of a replay that stand in a file.

    file:    absolute; never written to again
    rows:    how many
    last_id: the largest of their ids; once that is overwritten, the file is of no use
    nbytes, sha256: of the file
    """

    file: Path
    rows: int
    last_id: int
    nbytes: int
    sha256: str


class Saved:
    """What of a ring stands in files. A row that changes afterwards is touched: it is saved once more."""

    def __init__(self) -> None:
        self.parts: tuple[SegmentFile, ...] = ()
        self._end = 0  # ids from here on have never been saved
        self._touched: list[int] = []
        self._refreshed = False

    @property
    def carries_differ(self) -> bool:
        """Whether saved rows may have other carries by now than their files say."""
        return self._refreshed

    def touch(self, id_: int) -> None:
        """The row ``id_`` is about to change."""
        if id_ < self._end:
            self._touched.append(id_)

    def touch_carries(self) -> None:
        """The carries of any rows are about to change."""
        self._refreshed |= self._end > 0

    def mark(self, parts: tuple[SegmentFile, ...], next_id: int) -> None:
        """All rows below ``next_id`` stand in ``parts`` as they are now, but for refreshed carries."""
        self.parts, self._end = parts, next_id
        self._touched.clear()

    def forget(self, *, refreshed: bool = False) -> None:
        """Nothing is known to stand in a file, and what will be marked has old carries if ``refreshed``."""
        self.parts, self._end, self._refreshed = (), 0, refreshed
        self._touched.clear()

    def unsaved(self, oldest: int, next_id: int) -> tuple[Int, int]:
        """Ids of the touched rows that live, ascending, and the first of the new ones, which all count."""
        touched = np.unique(np.array(self._touched, np.int64))
        return touched[touched >= oldest], min(max(self._end, oldest), next_id)


def record_type(layout: Layout) -> np.dtype[Any]:
    """A row and its id as one record: a column for each matrix that has any width."""
    columns = [
        (name, np.dtype(kind).newbyteorder("<").str, (width,))
        for name, (width, kind) in layout.matrices.items()
        if width
    ]
    return np.dtype([("id", "<i8"), *columns])


def id_ranges(first: int, end: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """first … end − 1 in ranges (first, number) of at most :data:`CHUNK_BYTES` of rows each."""
    step = max(1, CHUNK_BYTES // max(1, row_bytes))
    for start in range(first, end, step):
        yield start, min(step, end - start)
