"""State of a replay for checkpoints, and the files that hold rows of it already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from algorithm.core.errors import COMMON_BLOCK
from algorithm.core.open_streams import OpenStreams
from algorithm.replay.layout import ArrayChunks, Records, SegmentFile
from algorithm.replay.relabel import Relabel
from algorithm.replay.samplers import Sampler
from algorithm.replay.storage import Storage
from algorithm.replay.windows import WindowReader
from algorithm.replay.writer import Writer


@dataclass(frozen=True)
class ReplayState:
    """Complete state of a replay, from which it continues as if it had never stopped.

    meta:   strict JSON
    arrays: by name, the state beside the rows, without fixed parts
    rows:   records of the living rows, in chunks
    """

    meta: Mapping[str, Any]
    arrays: Mapping[str, ArrayChunks]
    rows: Iterable[Records]


class SavedReplay:
    """Saving and loading of a :class:`~algorithm.replay.buffer.ReplayBuffer`, which sets the attributes."""

    relabel: Relabel
    _storage: Storage
    _writer: Writer
    _windows: WindowReader
    _sampler: Sampler
    _rng: np.random.Generator

    @property
    def capacity(self) -> int:
        """Number of rows that the ring can hold."""
        return self._storage.capacity

    @property
    def next_id(self) -> int:
        """Id of the next new row; the difference to a row's own id is its age."""
        return self._storage.next_id

    def state(self) -> ReplayState:
        """Return the whole state. Its chunks must be read before the replay changes."""
        arrays, scalars = self._sampler.state()
        if self._storage.saved.carries_differ:
            arrays["carry"] = self._storage.in_order(self._storage.carry)
        meta = {
            "capacity": self.capacity,
            "next_id": self.next_id,
            "columns": self._columns(),
            "streams": [[stream, head.number, head.step] for stream, head in self._writer.heads],
            "sampler": scalars,
            "rng": self._rng.bit_generator.state,
        }
        return ReplayState(meta, arrays, self._storage.records().chunks)

    def load_state(self, state: ReplayState) -> None:
        """Continue from ``state``. Its records may repeat rows: the last one counts.

        With the same capacity all later results are the same, bit for bit. With a larger one the draws
        differ, and if rows had been overwritten, the oldest living one gets the id 0: by their old ids the
        overwritten rows would count as alive.
        Raises ValueError, and changes nothing, if columns or sampler differ or the capacity is smaller.
        Raises it also for inconsistent data; the replay is then unusable.
        """
        meta = state.meta
        self._check_fits(state)
        next_id, oldest = meta["next_id"], max(meta["next_id"] - meta["capacity"], 0)
        shift = oldest if self.capacity > meta["capacity"] else 0
        self._storage.load(state.rows, oldest=oldest, next_id=next_id, shift=shift)
        self._windows.loaded()
        self.relabel.loaded()
        if "carry" in state.arrays:
            self._storage.put_in_order(self._storage.carry, state.arrays["carry"])
        self._storage.saved.forget(refreshed="carry" in state.arrays and not shift)
        self._sampler.load_state(state.arrays, meta["sampler"], shift)
        self._writer.heads = OpenStreams(np.int64)
        for stream, id_, step in meta["streams"]:
            # The head row of a stream may have been overwritten: it must not come to life as a negative id.
            if not shift or id_ >= shift:
                self._writer.heads.put(stream, step, id_ - shift)
        self._rng.bit_generator.state = meta["rng"]

    def _check_fits(self, state: ReplayState) -> None:
        """Raise ValueError unless the saved columns and sampler are ours, and its capacity is no larger."""
        meta = state.meta
        if meta["capacity"] > self.capacity:
            raise ValueError(
                f"replay_config.capacity is {self.capacity:,}, too small for the saved replay: its "
                f"capacity is {meta['capacity']:,} rows; set it to that or more"
            )
        self._check_columns(meta["columns"])
        arrays, scalars = self._sampler.state()
        if state.arrays.keys() - {"carry"} != arrays.keys() or meta["sampler"].keys() != scalars.keys():
            raise ValueError(
                f"replay state was saved by another sampler than {type(self._sampler).__name__}: "
                f"set {COMMON_BLOCK}.use_priority, use_replay_buffer and replay_config.sampler as they were"
            )

    def _check_columns(self, saved: Mapping[str, list[object]]) -> None:
        """Raise ValueError unless the saved columns are ours."""
        ours = self._columns()
        for name in sorted(saved.keys() | ours.keys()):
            if saved.get(name) != ours.get(name):
                raise ValueError(
                    f"replay state, column {name}: expected {ours.get(name)}, {saved.get(name)} was saved; "
                    "observations, actions, memory and version must be those of the saved replay"
                )

    def _columns(self) -> dict[str, list[object]]:
        """Return name → [width, dtype] of the matrices of a row, as JSON."""
        return {name: [width, kind] for name, (width, kind) in self._storage.layout.matrices.items() if width}

    @property
    def record_type(self) -> np.dtype[Any]:
        """Type of the records in :attr:`ReplayState.rows`: ``id`` and the columns."""
        return self._storage.record_type

    def unsaved(self) -> ArrayChunks:
        """Return records of the rows that are new, or have changed, since :meth:`mark_saved`."""
        return self._storage.unsaved()

    @property
    def saved_files(self) -> tuple[SegmentFile, ...]:
        """Files that hold living rows, oldest first; every living row that is not unsaved is in one."""
        return tuple(file for file in self._storage.saved.files if file.last_id >= self._storage.oldest)

    def mark_saved(self, files: tuple[SegmentFile, ...]) -> None:
        """Mark all living rows as saved in ``files``; of a row in several files the last one counts."""
        self._storage.saved.mark(files, self.next_id)

    def forget_saved(self) -> None:
        """Mark all rows as unsaved, in no file."""
        self._storage.saved.forget()
