"""Recordings as one ``.npz`` of plain arrays, as ``docs/evaluation.md`` describes. Everything is checked."""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from algorithm.core.data import Array
from algorithm.core.errors import described
from algorithm.core.reading import check_zip, open_plain
from algorithm.core.system.files import replace as replace_file
from algorithm.core.system.memory import free_memory
from algorithm.demos.episode import (
    FaultyRecordingError,
    Notify,
    RecordedEpisode,
    Wanted,
    shown,
)
from algorithm.env.observations import UNNAMED

_LARGEST = 2**40  # bytes of a file; its episodes are read one after the other
_ENTRY = 20  # bytes in memory for each of a directory, at least
_SMALL = 2**20  # bytes of an array; to ask for the free memory takes longer than to read so many
_NEEDED = ("action", "reward", "terminated")
_OPTIONAL = ("action_mask", "truncated", "carry", "z", "behaviour_logp")


def read_npz(path: Path, wanted: Wanted | None, notify: Notify) -> Iterator[RecordedEpisode]:
    """Yield the episodes of a file; see :data:`algorithm.demos.episode.Reader`."""
    try:
        with open_plain(path, _LARGEST, follow=True) as file:
            check_zip(file, free_memory() // _ENTRY)
            with zipfile.ZipFile(file) as archive:
                names = _behaviours(archive)
                read = set(names) if wanted is None else wanted.names_in(names, notify)
                arrays = _arrays_of(archive)
                for number, name in enumerate(names):
                    if name in read:
                        yield _episode(archive, number, name, arrays[str(number)])
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise FaultyRecordingError(f"it is not a recording: {error}") from error


def _behaviours(archive: zipfile.ZipFile) -> list[str]:
    """Return the behaviour of each episode."""
    value = _array(archive, "behaviour")
    if value.ndim != 1 or value.dtype.kind != "U":
        raise FaultyRecordingError(f"expected one name for each episode, got {shown(value)}", "behaviour")
    names: list[str] = value.tolist()
    return names


def _arrays_of(archive: zipfile.ZipFile) -> Mapping[str, set[str]]:
    """Return the names of the arrays of each episode, by its number."""
    arrays: defaultdict[str, set[str]] = defaultdict(set)
    for name in archive.namelist():
        number, _, rest = name.partition("/")
        arrays[number].add(rest.removesuffix(".npy"))
    return arrays


def _array(archive: zipfile.ZipFile, name: str) -> Array:
    """Return an array by name. Raises FaultyRecordingError before memory is filled by a false header."""
    try:
        info = archive.getinfo(f"{name}.npy")
    except KeyError:
        there = [entry.removesuffix(".npy") for entry in archive.namelist()]
        near = get_close_matches(name, there, n=1)
        fix = (
            f"{near[0]} is there: did you mean that?"
            if near
            else f"add it; docs/evaluation.md explains {name}"
        )
        raise FaultyRecordingError("it is missing", name, fix) from None
    if info.file_size > _SMALL and info.file_size > free_memory() // 2:
        raise FaultyRecordingError(
            f"it has {info.file_size:,} bytes, more than half of the free memory", name
        )
    with archive.open(info) as member:
        try:
            value: Array = np.lib.format.read_array(member, allow_pickle=False)
            rest = member.read(1)  # at the end of the member its checksum is compared
        except Exception as error:  # numpy evaluates the header as Python, and lets pass what that raises
            raise FaultyRecordingError(f"it cannot be read: {described(error)}", name) from error
        if rest:
            raise FaultyRecordingError("it has more bytes than its header states", name)
    return value


def _episode(archive: zipfile.ZipFile, number: int, behaviour: str, there: set[str]) -> RecordedEpisode:
    """Read an episode. there: names of its arrays; optional ones may be missing."""
    prefix = "obs/"
    seen = [name.removeprefix(prefix) for name in there if name.startswith(prefix)]
    optional = there.intersection(_OPTIONAL)
    arrays: dict[str, Any] = {name: _array(archive, f"{number}/{name}") for name in (*_NEEDED, *optional)}
    if not seen:
        raise FaultyRecordingError(
            "it has no observation",
            str(number),
            f"call them {number}/{prefix}NAME, or {number}/{prefix}{UNNAMED} where they have no name; "
            f"there: {', '.join(sorted(there))}",
        )
    length = len(np.atleast_1d(arrays["reward"]))
    arrays.setdefault("action_mask", np.ones((length + 1, 0), np.bool_))
    arrays.setdefault("truncated", np.zeros(length, np.bool_))
    return RecordedEpisode(
        number=number,
        behaviour=behaviour,
        agent=0,
        obs={name: _array(archive, f"{number}/{prefix}{name}") for name in sorted(seen)},
        **arrays,
    )


class NpzWriter:
    """Writer of an ``.npz`` recording, which appears at the end, complete, in place of an older file."""

    def __init__(self, path: Path) -> None:
        self.target, self._path = str(path), path
        self._draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._file: zipfile.ZipFile | None = None
        self._lists: dict[str, list[str | int | float]] = {}

    def begin(self) -> None:
        """Open the file. Raises OSError, as the following methods but the last."""
        if self._path.is_dir():
            raise IsADirectoryError("it is a folder")
        self._lists = {"behaviour": [], "agent": [], "length": [], "total": []}
        self._file = zipfile.ZipFile(self._draft, "w", zipfile.ZIP_DEFLATED, compresslevel=1)

    def write(self, episode: RecordedEpisode) -> None:
        """Append an episode."""
        named = {f"obs/{name}": value for name, value in episode.obs.items()}
        named |= {name: getattr(episode, name) for name in (*_NEEDED, *_OPTIONAL)}
        for name, value in named.items():
            if value is not None:
                self._array(f"{episode.number}/{name}", value)
        total = float(np.sum(episode.reward, dtype=np.float64))
        facts: dict[str, str | int | float] = {"behaviour": episode.behaviour, "agent": episode.agent}
        facts |= {"length": len(episode.reward), "total": total}
        for name, entry in facts.items():
            self._lists[name].append(entry)

    def finish(self) -> None:
        """Write the facts of all episodes, and give the file its name."""
        assert self._file is not None, "begin comes first"
        types = {"behaviour": np.str_, "agent": np.int64, "length": np.int64, "total": np.float64}
        for name, values in self._lists.items():
            self._array(name, np.array(values, types[name]))
        self._file.close()
        replace_file(self._draft, self._path)
        self._file = None

    def discard(self) -> None:
        """Remove what was written."""
        file, self._file = self._file, None
        with contextlib.suppress(OSError):  # the disk may be full
            if file is not None:
                file.close()
        with contextlib.suppress(OSError):
            self._draft.unlink()

    def _array(self, name: str, value: ArrayLike) -> None:
        """Append an array to the archive."""
        assert self._file is not None, "begin comes first"
        with self._file.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.asanyarray(value), allow_pickle=False)
