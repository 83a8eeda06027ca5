"""What a checkpoint lists, and how listed files are read: only if they are exactly what was written.

A name that leads out of its folder, a symbolic link, a device, another size, another SHA-256: each is damage.
The size is looked at before anything is read; nothing that is read is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from algorithm.errors import StorageError
from algorithm.run.files import json_text

SCHEMA = 4
"""Version of the layout; a reader refuses any other."""

MANIFEST = "manifest.json"
STATE = "state.json"
TENSORS = ".safetensors"

_MAX_MANIFEST = 64 * 2**20
_BLOCK = 2**20


@dataclass(frozen=True)
class Entry:
    """A file as it was written."""

    nbytes: int
    sha256: str

    @classmethod
    def of(cls, data: bytes) -> Entry:
        """Of a file that holds ``data``."""
        return cls(len(data), hashlib.sha256(data).hexdigest())

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Entry:
        """From JSON. Raises KeyError, TypeError, ValueError."""
        return cls(int(value["bytes"]), str(value["sha256"]))

    @property
    def listed(self) -> dict[str, object]:
        """For JSON."""
        return {"bytes": self.nbytes, "sha256": self.sha256}


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The files of a checkpoint by name.

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
        """As JSON."""
        content = {"schema": SCHEMA, "step": self.step, "files": _listed(self.files), "replay": None}
        if self.replay is not None:
            content["replay"] = {"index": self.replay.listed, "segments": _listed(self.segments)}
        return json_text(content)


def read_manifest(path: Path) -> Manifest:
    """The manifest of the checkpoint in ``path``. Raises StorageError, naming the file and what is wrong."""
    file = path / MANIFEST
    if path.is_symlink():
        raise damaged(path, "it is a symbolic link")
    try:
        nbytes = file.lstat().st_size
    except OSError as error:
        raise damaged(file, error.strerror or str(error)) from error
    if nbytes > _MAX_MANIFEST:
        raise damaged(file, f"it has {nbytes} bytes, far too many")
    with open_listed(path, MANIFEST, nbytes) as opened:
        content = parsed(file, _read(file, opened, nbytes))
    try:
        if content["schema"] != SCHEMA:
            raise damaged(file, f"schema {content['schema']} was written, {SCHEMA} can be read")
        if STATE not in content["files"]:
            raise damaged(file, f"it does not list {STATE}")
        replay = content["replay"]
        return Manifest(
            step=int(content["step"]),
            files=_entries(file, content["files"]),
            replay=None if replay is None else Entry.read(replay["index"]),
            segments={} if replay is None else _entries(file, replay["segments"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(file, f"it is not a manifest ({type(error).__name__}: {error})") from error


def parsed(file: Path, data: bytes) -> Any:  # noqa: ANN401 -- JSON
    """``data``, the content of ``file``, as JSON. Raises StorageError."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise damaged(file, f"it is no JSON ({error})") from error


def open_listed(folder: Path, name: str, nbytes: int) -> BinaryIO:
    """Open the file ``name``, from a manifest, below ``folder``: a plain file of that size, behind no link.

    Raises StorageError.
    """
    path, parts = folder / name, PurePosixPath(name).parts
    try:
        for depth in range(1, len(parts) + 1):
            if folder.joinpath(*parts[:depth]).is_symlink():
                raise damaged(folder.joinpath(*parts[:depth]), "it is a symbolic link")
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise damaged(path, "it is no plain file")
        if found.st_size != nbytes:
            raise damaged(path, f"it has {found.st_size} bytes, {nbytes} were written")
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error


def read_listed(folder: Path, name: str, entry: Entry) -> bytes:
    """The content of a listed file. Raises StorageError."""
    with open_listed(folder, name, entry.nbytes) as file:
        data = _read(folder / name, file, entry.nbytes + 1)
    check_hash(folder / name, entry, hashlib.sha256(data))
    return data


def check_listed(folder: Path, name: str, entry: Entry) -> None:
    """Raise StorageError unless a listed file is as it was written; it need not fit into memory."""
    digest = hashlib.sha256()
    with open_listed(folder, name, entry.nbytes) as file:
        while block := _read(folder / name, file, _BLOCK):
            digest.update(block)
    check_hash(folder / name, entry, digest)


def check_hash(path: Path, entry: Entry, digest: hashlib._Hash) -> None:
    """Raise StorageError unless ``digest``, of what was read from ``path``, is what was written."""
    if digest.hexdigest() != entry.sha256:
        raise damaged(path, "its SHA-256 is not the one that was written")


def damaged(where: Path, why: str) -> StorageError:
    """The error for a file of a checkpoint that is not what was written."""
    return StorageError("a checkpoint is damaged", where=where, why=why, fix="use another one: --ckpt STEP")


def is_damage(error: StorageError) -> bool:
    """Whether a file is not what was written, or gone. False: it could not be read, which may pass."""
    cause = error.__cause__
    return not isinstance(cause, OSError) or isinstance(cause, FileNotFoundError | NotADirectoryError)


def _read(path: Path, file: BinaryIO, nbytes: int) -> bytes:
    try:
        return file.read(nbytes)
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error


def _entries(manifest: Path, value: Mapping[str, Any]) -> dict[str, Entry]:
    for name in map(PurePosixPath, value):
        if not name.parts or ".." in name.parts or name.is_absolute():
            raise damaged(manifest, f"it points outside of the folder, to {name}")
    return {str(name): Entry.read(entry) for name, entry in value.items()}


def _listed(entries: Mapping[str, Entry]) -> dict[str, object]:
    return {name: entry.listed for name, entry in entries.items()}
