"""Matrices of a replay, the place of each field in them, and records of rows as structured arrays.

Fields of one kind share one matrix, so that a batch costs one gather per kind:

* ``acted`` float32: z, behaviour_logp, reward;
* ``byte`` uint8: action mask, then the one-hot of the discrete branches (width 0 without branches);
* ``links`` int32: distance back to the previous row, distance to the next row with the end flags in its two
  lowest bits, step in the episode. Distance 0 means there is none; a row with a next row is a transition;
* ``carry`` float32: the carries of a memory (width 0 without one);
* ``obs_float32``, ``obs_uint8`` and so on: the observations of one dtype, in that dtype (images stay uint8);
* ``obs_uint8x4`` and so on: the newest frames of observations that are stacks of 4 frames of one dtype.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from algorithm.core.data import Array, Int
from algorithm.core.spec import AgentSpec

Records = NDArray[Any]
"""Structured array of rows: their ``id``, and a column for each matrix."""

CHUNK_BYTES = 4 * 2**20
"""Size of the chunks in which arrays are saved and loaded, so that this needs little memory."""


class Field(NamedTuple):
    """Place of one observation in the matrices."""

    name: str
    matrix: str
    columns: slice
    shape: tuple[int, ...]  # of one row's part: a whole observation, or the newest frame of a stack
    stack: int  # frames of the observation; 1 is no stack


class Column(NamedTuple):
    """Columns of a row in one matrix of the replay: their number and dtype."""

    width: int
    dtype: str


class Layout:
    """Layout of the rows of one agent. It is calculated only: nothing is allocated."""

    def __init__(self, spec: AgentSpec, carry_shape: tuple[int, ...] = ()) -> None:
        """Compute the layout; ``carry_shape`` () or any shape with a 0 means no carry is stored."""
        action = spec.action
        widths: dict[str, Column] = {}
        self.fields = _place(spec, widths)
        self.z = slice(0, action.continuous)
        self.logp = slice(self.z.stop, self.z.stop + action.record_size)
        self.reward = self.logp.stop
        self.matrices: dict[str, Column] = {
            "acted": Column(self.reward + 1, "float32"),
            "byte": Column(2 * action.discrete, "uint8"),
            "links": Column(3, "int32"),
            "carry": Column(prod(carry_shape or (0,)), "float32"),
            **widths,
        }

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, without those that a sampler keeps for it."""
        return sum(width * np.dtype(kind).itemsize for width, kind in self.matrices.values())


def _place(spec: AgentSpec, widths: dict[str, Column]) -> tuple[Field, ...]:
    """Return the place of each observation, and add the matrices for them to ``widths``."""
    fields: list[Field] = []
    for (name, shape, kind), stack in zip(spec.obs.items(), spec.obs.stacks, strict=True):
        matrix = f"obs_{kind}"
        if stack > 1:
            matrix, shape = f"{matrix}x{stack}", shape[1:]
        start = widths.get(matrix, Column(0, kind)).width
        end = start + prod(shape)
        widths[matrix] = Column(end, kind)
        fields.append(Field(name, matrix, slice(start, end), shape, stack))
    return tuple(fields)


@dataclass(frozen=True)
class ArrayChunks:
    """Array in chunks along its first axis, which can be iterated once.

    dtype, shape: of the whole array
    chunks:       each is valid until the next one is read
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunks: Iterable[Array]

    @classmethod
    def of(cls, array: Array) -> ArrayChunks:
        """Return ``array`` as one chunk; an empty array has none."""
        return cls(array.dtype, array.shape, [array] if array.size else [])


@dataclass(frozen=True)
class SegmentFile:
    """File that holds rows of a replay.

    file:    absolute path; the file is never written to again
    rows:    number of rows in it
    last_id: largest id of them; once that row is overwritten, the file is of no use
    nbytes, sha256: size and hash of the file
    """

    file: Path
    rows: int
    last_id: int
    nbytes: int
    sha256: str


class Saved:
    """Record of the rows of a ring that are saved in files, and of those among them that have changed since.

    files:          that hold rows
    carries_differ: saved rows may have other carries by now than in their files
    """

    def __init__(self) -> None:
        self.files: tuple[SegmentFile, ...] = ()
        self._end = 0  # ids from here on have never been saved
        self._touched: list[int] = []
        self.carries_differ = False

    def touch(self, *ids: int) -> None:
        """Mark the rows ``ids`` as changed, so that they are saved again; to be called before the change."""
        end = self._end
        self._touched += [id_ for id_ in ids if id_ < end]

    def touch_carries(self) -> None:
        """Mark the carries of all saved rows as changed; to be called before a change of any."""
        self.carries_differ |= self._end > 0

    def mark(self, files: tuple[SegmentFile, ...], next_id: int) -> None:
        """Mark all rows below ``next_id`` as saved in ``files``, except for changed carries."""
        self.files, self._end = files, next_id
        self._touched.clear()

    def forget(self, *, refreshed: bool = False) -> None:
        """Mark all rows as unsaved; refreshed: the carries differ from those that will be saved with rows."""
        self.files, self._end, self.carries_differ = (), 0, refreshed
        self._touched.clear()

    def unsaved(self, oldest: int, next_id: int) -> tuple[Int, int]:
        """Return the ids of the changed living rows, ascending, and the first id of the new rows."""
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
    """Yield the ids first … end − 1 as ranges (first, number) of at most :data:`CHUNK_BYTES` of rows each."""
    step = max(1, CHUNK_BYTES // max(1, row_bytes))
    for start in range(first, end, step):
        yield start, min(step, end - start)
