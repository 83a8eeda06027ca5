"""The manifest of a checkpoint, and readers of its files, which must be exactly as they were written.

A name that leads out of its folder, a symbolic link, a device, another size, another SHA-256: each is damage.
The size is compared before anything is read; nothing that is read is ever executed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from algorithm.core.errors import StorageError, described
from algorithm.core.reading import open_plain, parse_json, read_bytes
from algorithm.store.files import json_text

SCHEMA = 5
"""Version of the layout; a reader refuses any other."""

NAME = re.compile(r"step_([0-9]{9,15})(?:_([0-9]{1,9}))?")
"""Pattern of a checkpoint's folder name: its step, and its number within that step."""

MANIFEST = "manifest.json"
STATE = "state.json"
INDEX = "replay.json"
TENSORS = ".safetensors"
TRAINED = "trained"
"""Key in the header of a file of networks: the names of the tensors that an optimiser trains, a JSON list."""

LARGEST = 2**50
"""Maximum size in bytes of a file read in chunks, whose size the manifest states."""

WHOLE = 2**34
"""Maximum size in bytes of a file read in one piece."""

_BLOCK = 2**20


@dataclass(frozen=True)
class Entry:
    """Size and checksum of a file as it was written."""

    nbytes: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> Entry:
        """Return size and checksum of a file with the content ``data``."""
        return cls(len(data), hashlib.sha256(data).hexdigest())

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Entry:
        """Parse :attr:`listed`. Raises KeyError, TypeError, ValueError."""
        nbytes, sha256 = value["bytes"], value["sha256"]
        if type(nbytes) is not int or nbytes < 0 or not isinstance(sha256, str):
            raise TypeError(f"{value!r:.80} is not a size and SHA-256")
        return cls(nbytes, sha256)

    @property
    def listed(self) -> dict[str, object]:
        """The entry as JSON."""
        return {"bytes": self.nbytes, "sha256": self.sha256}


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The files of a checkpoint by name, with a hash over all of it.

    files:    in its own folder
    replay:   the file that describes the replays, beside them; None if they were not saved
    segments: in the folder of the replays, which checkpoints share
    """

    step: int
    files: Mapping[str, Entry]
    replay: Entry | None
    segments: Mapping[str, Entry]

    @property
    def text(self) -> str:
        """The manifest as JSON text. The last entry is the SHA-256 of the text without it."""
        content = {"schema": SCHEMA, "step": self.step, "files": _listed(self.files), "replay": None}
        if self.replay is not None:
            content["replay"] = {"index": self.replay.listed, "segments": _listed(self.segments)}
        digest = hashlib.sha256(json_text(content).encode()).hexdigest()
        return json_text({**content, "sha256": digest})


def is_step(value: object) -> bool:
    """Return whether a value from a file is a valid step of a checkpoint."""
    return type(value) is int and 0 <= value < 10**15


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of the checkpoint in ``path``. Raises StorageError with the file and the reason."""
    file = path / MANIFEST
    if path.is_symlink():
        raise damaged(path, "it is a symbolic link")
    try:
        data = read_bytes(file)
    except (OSError, ValueError) as error:
        raise damaged(file, getattr(error, "strerror", None) or str(error)) from error
    content = parsed(file, data)
    try:
        if content["schema"] != SCHEMA:
            raise damaged(file, f"schema {content['schema']} was written, {SCHEMA} can be read")
        if STATE not in content["files"]:
            raise damaged(file, f"it does not list {STATE}")
        replay, step = content["replay"], content["step"]
        if not is_step(step):
            raise TypeError(f"the step is {step!r}")
        manifest = Manifest(
            step=step,
            files=_entries(file, content["files"]),
            replay=None if replay is None else Entry.read(replay["index"]),
            segments={} if replay is None else _entries(file, replay["segments"]),
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise damaged(file, f"it is not a manifest ({described(error)})") from error
    if manifest.text.encode() != data:
        raise damaged(file, "its SHA-256 is not that of its content")
    if (named := NAME.fullmatch(path.name)) and int(named[1]) != manifest.step:
        raise damaged(file, f"it is that of step {manifest.step}, and its folder is called {path.name}")
    return manifest


def parsed(file: Path, data: bytes) -> Any:  # noqa: ANN401 -- JSON
    """Parse ``data``, the content of ``file``, as JSON. Raises StorageError."""
    try:
        return parse_json(data)
    except ValueError as error:
        raise damaged(file, f"it is not JSON ({error})") from error


def listed_blocks(
    folder: Path, name: str, entry: Entry, sizes: Iterable[int] = itertools.repeat(_BLOCK)
) -> Iterator[bytes]:
    """Yield the content of a manifest's file ``name`` below ``folder``, in blocks of the given sizes.

    The first step raises StorageError unless it is a plain file of the right size, behind no link; the last
    one if the SHA-256 is wrong, so the caller must iterate to the end.
    """
    path, parts, digest = folder / name, PurePosixPath(name).parts, hashlib.sha256()
    try:
        for place in (folder.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)):
            if place.is_symlink():
                raise damaged(place, "it is a symbolic link")
        with open_plain(path, LARGEST) as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry.nbytes:
                raise ValueError(f"it has {size} bytes, {entry.nbytes} were written")
            for block in itertools.takewhile(len, map(file.read, sizes)):
                digest.update(block)
                yield block
    except (OSError, ValueError) as error:
        raise damaged(path, getattr(error, "strerror", None) or str(error)) from error
    if digest.hexdigest() != entry.sha256:
        raise damaged(path, "its SHA-256 is not the one that was written")


def read_listed(folder: Path, name: str, entry: Entry) -> bytes:
    """Read a listed file. Raises StorageError."""
    if entry.nbytes > WHOLE:
        raise damaged(folder / name, f"it has {entry.nbytes:,} bytes, far too many")
    return b"".join(listed_blocks(folder, name, entry, itertools.repeat(entry.nbytes)))


def check_listed(folder: Path, name: str, entry: Entry) -> None:
    """Raise StorageError unless a listed file is as it was written; it is read in blocks."""
    for _ in listed_blocks(folder, name, entry):
        pass


class DamagedError(StorageError):
    """A file of a checkpoint that is missing, cannot be read, or is not as it was written."""


def damaged(where: Path, why: str) -> DamagedError:
    """Return the error for a file of a checkpoint that is not as it was written."""
    return DamagedError("a checkpoint is damaged", where=where, why=why, fix="use the one of another step")


def is_damage(error: StorageError) -> bool:
    """Return whether a file is missing or changed; False for a failed read, which may be temporary."""
    cause = error.__cause__
    return not isinstance(cause, OSError) or isinstance(cause, FileNotFoundError | NotADirectoryError)


def _entries(manifest: Path, value: Mapping[str, Any]) -> dict[str, Entry]:
    """Parse name -> entry. Raises DamagedError for a name that leads out of the folder."""
    for name in map(PurePosixPath, value):
        if not name.parts or ".." in name.parts or name.is_absolute():
            raise damaged(manifest, f"it points outside of the folder, to {name}")
    return {str(name): Entry.read(entry) for name, entry in value.items()}


def _listed(entries: Mapping[str, Entry]) -> dict[str, object]:
    """Return name -> entry as JSON."""
    return {name: entry.listed for name, entry in entries.items()}
