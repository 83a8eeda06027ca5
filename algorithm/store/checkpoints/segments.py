"""Replays on disk: ``.npy`` files that are written once, in chunks, and shared by checkpoints.

A replay's rows stand in segments, as records with their ids. A checkpoint adds one: the rows that are new
or have changed since the last. Read in order, the later record of a row counts. What changes all over, such
as priorities, is an array of its own with every checkpoint.

The header of a file is not parsed: it must be, byte for byte, the one that would be written for what is
expected. So a forged pickle, type or size has no effect.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from algorithm.core.data import Array
from algorithm.core.system.files import sync, sync_folder
from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.layout import CHUNK_BYTES, ArrayChunks, Records, SegmentFile
from algorithm.replay.saving import ReplayState
from algorithm.store.checkpoints.manifest import Entry, damaged, listed_blocks
from algorithm.store.files import make_folder, put

PATTERN = "seg_*.npy"
"""Pattern of all files written here."""

MAX_PARTS = 1000
"""Number of segments of one replay from which on it is rewritten as one."""

_KINDS = ("<f8", "<f4", "<i8")  # dtypes of the arrays beside the rows


@dataclass(frozen=True)
class WrittenReplay:
    """The files of a replay in a checkpoint.

    parts:   segments with its rows, those of earlier checkpoints too
    arrays:  name → file, shape, dtype and entry of each other array
    bytes_written: bytes in files that are new
    """

    parts: tuple[SegmentFile, ...]
    arrays: Mapping[str, tuple[Path, ArrayChunks, Entry]]
    meta: Mapping[str, Any]
    bytes_written: int

    @property
    def segments(self) -> dict[str, Entry]:
        """All its files, by name."""
        rows = {part.file.name: Entry(part.nbytes, part.sha256) for part in self.parts}
        return rows | {file.name: entry for file, _, entry in self.arrays.values()}

    @property
    def index(self) -> dict[str, object]:
        """Index of the files, as JSON, from which :func:`read_replay` restores the replay."""
        rows = [{"file": p.file.name, "rows": p.rows, "last_id": p.last_id} for p in self.parts]
        arrays = {
            name: {"file": file.name, "dtype": of.dtype.str, "shape": list(of.shape)}
            for name, (file, of, _) in self.arrays.items()
        }
        return {"rows": rows, "arrays": arrays, "meta": self.meta}


def write_replay(folder: Path, step: int, replay: ReplayBuffer) -> WrittenReplay:
    """Write the rows of a replay that are new or changed to ``folder``, complete and synced. Raises OSError.

    The caller calls :meth:`ReplayBuffer.mark_saved` once the checkpoint of ``step`` is complete.
    """
    make_folder(folder)
    if not _reusable(replay.saved_files, folder):
        replay.forget_saved()
    parts, state, nbytes = replay.saved_files, replay.state(), 0
    rows, arrays = replay.unsaved(), {}
    if rows.shape[0]:
        file = _new(folder, f"seg_{step:09d}")
        entry = write_array(file, rows)
        nbytes += entry.nbytes
        parts += (SegmentFile(file, rows.shape[0], replay.next_id - 1, entry.nbytes, entry.sha256),)
    for name, array in state.arrays.items():
        file = _new(folder, f"seg_{step:09d}_{name}")
        entry = write_array(file, array)
        nbytes += entry.nbytes
        arrays[name] = (file, array, entry)
    sync_folder(folder)
    return WrittenReplay(parts, arrays, state.meta, nbytes)


def _new(folder: Path, stem: str) -> Path:
    """Return a name that is not taken: the same step may be saved twice."""
    again = (f"{stem}_{n}" for n in itertools.count(2))
    names = (folder / f"{name}.npy" for name in itertools.chain([stem], again))
    return next(name for name in names if not os.path.lexists(name))


def write_array(file: Path, content: ArrayChunks) -> Entry:
    """Write a new ``.npy`` file, durably, and hash it on the way. Raises OSError."""
    digest, nbytes = hashlib.sha256(), 0
    with file.open("xb") as opened:
        for data in _bytes_of(content):
            put(opened, data)
            digest.update(data)
            nbytes += len(data)
        opened.flush()
        sync(opened.fileno())
    return Entry(nbytes, digest.hexdigest())


def read_array(
    folder: Path, name: str, entry: Entry, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> ArrayChunks:
    """Read a listed ``.npy`` file of known dtype and shape, and hash it on the way.

    Reading the chunks raises StorageError if the file is not as it was written; the last one at its end.
    """
    return ArrayChunks(dtype, shape, _chunks(folder, name, entry, dtype, shape))


def read_replay(
    replays: Path, level: str, index: Mapping[str, Any], segments: Mapping[str, Entry], replay: ReplayBuffer
) -> None:
    """Load a replay from its files.

    replays:  folder of all replays
    level:    folder level of this replay below it, or empty
    index:    :attr:`WrittenReplay.index`
    segments: the files that a checkpoint lists, by name below ``replays``
    Raises StorageError for damage, ValueError (from :meth:`ReplayBuffer.load_state`) for a replay that does
    not fit, LookupError or TypeError for an invalid index.
    """
    parts = []
    for row in index["rows"]:
        name = str(PurePosixPath(level, row["file"]))
        entry = segments[name]
        parts.append(SegmentFile(replays / name, row["rows"], row["last_id"], entry.nbytes, entry.sha256))
    arrays = {}
    for key, array in index["arrays"].items():
        if array["dtype"] not in _KINDS:
            raise ValueError(f"replay state, {key}: the dtype {array['dtype']!r} is not known")
        name = str(PurePosixPath(level, array["file"]))
        arrays[key] = read_array(
            replays, name, segments[name], np.dtype(array["dtype"]), tuple(array["shape"])
        )
    rows = _records(replays, parts, replay.record_type)
    replay.load_state(ReplayState(index["meta"], arrays, rows))
    if replay.next_id == index["meta"]["next_id"]:  # else ids have been given anew, and no file has those
        replay.mark_saved(tuple(parts))


def try_to_remove(file: Path) -> bool:
    """Remove a file; return whether it is gone."""
    try:
        file.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _records(replays: Path, parts: list[SegmentFile], dtype: np.dtype[Any]) -> Iterator[Records]:
    """Yield the records of all segments in order, in chunks."""
    for part in parts:
        name, entry = part.file.relative_to(replays).as_posix(), Entry(part.nbytes, part.sha256)
        yield from read_array(replays, name, entry, dtype, (part.rows,)).chunks


def _reusable(parts: tuple[SegmentFile, ...], folder: Path) -> bool:
    """Return whether a checkpoint may name these files: in its folder and of the same length as before."""
    if len(parts) >= MAX_PARTS:
        return False
    try:
        return all(p.file.parent == folder and p.file.stat().st_size == p.nbytes for p in parts)
    except OSError:
        return False


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of a ``.npy`` file of version 1.0 (NumPy's NEP 1)."""
    descr = np.lib.format.dtype_to_descr(dtype)
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    begin = b"\x93NUMPY\x01\x00"
    padding = -(len(begin) + 2 + len(text) + 1) % 64
    text += b" " * padding + b"\n"
    return begin + struct.pack("<H", len(text)) + text


def _bytes_of(content: ArrayChunks) -> Iterator[bytes | memoryview]:
    """Yield the content of a ``.npy`` file: header, then chunks."""
    yield _header(content.dtype, content.shape)
    for chunk in content.chunks:
        yield memoryview(np.ascontiguousarray(chunk).reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def _chunks(
    folder: Path, name: str, entry: Entry, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Iterator[Array]:
    """Yield a ``.npy`` file in chunks of rows. Raises StorageError if it is not as it was written."""
    path, header = folder / name, _header(dtype, shape)
    row_bytes = dtype.itemsize * prod(shape[1:])
    if entry.nbytes != len(header) + shape[0] * row_bytes:
        raise damaged(path, f"{shape[0]} rows of {row_bytes} bytes do not make {entry.nbytes} bytes")
    chunk = max(1, CHUNK_BYTES // max(1, row_bytes)) * row_bytes
    blocks = listed_blocks(folder, name, entry, itertools.chain([len(header)], itertools.repeat(chunk)))
    if next(blocks) != header:
        raise damaged(path, f"its header is not that of {shape} {dtype}")
    for block in blocks:
        yield np.frombuffer(block, dtype).reshape(-1, *shape[1:])
