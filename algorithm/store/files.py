"""Files that a kill or a full disk leaves whole: replaced in one step, or grown by whole records.

Imports neither torch nor numpy.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from algorithm.core.errors import StorageError, UsageError
from algorithm.core.program import flag_or_argument
from algorithm.core.system.files import open_file, replace, sync, sync_folder

_DRAFT = ".tmp"


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, so that they survive a power cut. Raises OSError."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def put(file: BinaryIO, data: bytes | memoryview) -> None:
    """Write all of ``data``. All writing in pieces, or with fsync, goes through this function."""
    file.write(data)


def write_durably(path: Path, data: bytes) -> None:
    """Write in place and fsync, for files that are read only after a later rename. Raises OSError."""
    with path.open("wb") as file:
        put(file, data)
        file.flush()
        sync(file.fileno())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace ``path`` atomically by ``data``, as :func:`replacing`. Raises StorageError."""
    with replacing(path) as file:
        put(file, data)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces ``path`` atomically when the block ends: beside it, fsync, rename.

    Raises StorageError for an OSError, also one of the block. After any error the old file is untouched.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}{_DRAFT}")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            sync(file.fileno())
        replace(draft, path)
        sync_folder(path.parent)
    except Exception as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        if not isinstance(error, OSError):
            raise
        raise StorageError.of(error, what="a file cannot be written", where=path) from error


def remove_unfinished(folder: Path) -> None:
    """Remove the drafts of :func:`write_bytes` that killed processes have left in a folder."""
    for draft in folder.glob(f".*{_DRAFT}"):
        with contextlib.suppress(OSError):
            draft.unlink()


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` atomically by UTF-8 text. Raises StorageError."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write ``value`` as strict JSON, atomically.

    Raises StorageError; ValueError for NaN or infinity (see ``finite_or_null``); TypeError for other types.
    """
    write_text(path, json_text(value))


def json_text(value: Mapping[str, object]) -> str:
    """Format ``value`` as indented strict JSON. Raises ValueError and TypeError as ``write_json`` does."""
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def finite_or_null(value: object) -> object:
    """Replace every NaN and infinity in ``value``, however deep, by None; strict JSON has neither."""
    if isinstance(value, Mapping):
        return {key: finite_or_null(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite_or_null(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class GrowingFile:
    """A file that is only appended to, a whole record at a time.

    It is opened for each record, so that a failure leaves nothing open and nothing buffered. A kill leaves at
    most one torn record at the end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._torn_at: int | None = None

    def append(self, record: bytes) -> None:
        """Append ``record`` and hand it to the operating system.

        Raises OSError. The next call cuts off a piece of the record that had been written.
        """
        with open(_appending(self.path), "ab", buffering=0) as file:
            if self._torn_at is not None:
                file.truncate(self._torn_at)
            self._torn_at = file.seek(0, os.SEEK_END)
            rest = memoryview(record)
            while rest:  # a disk that is almost full takes a part of it, and the error comes with the next
                rest = rest[file.write(rest) :]
        self._torn_at = None

    def sync(self) -> None:
        """Make everything appended survive a power cut. Raises OSError."""
        with self.path.open("r+b") as file:
            sync(file.fileno())


def _appending(path: Path) -> int:
    """Open a plain file for appending, and create it if need be. Raises OSError."""
    handle = open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # a pipe would be waited for, a device take anything
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return handle


def refuse_taken(path: Path, *, replace: bool) -> None:
    """Raise UsageError if an export must not be written to ``path``."""
    fix = "choose another name, or move it away"
    if path.is_dir():
        why = "it is a folder"
    elif path.parent.is_file():
        why = f"{path.parent} is a file, and a folder is needed"
    elif path.exists() and not replace:
        why = "there is a file of that name already, and an export does not replace it by default"
        fix = f"choose another name, or {flag_or_argument('add --replace', 'pass replace=True')}"
    else:
        return
    raise UsageError("the export cannot be written", where=path, why=why, fix=fix)
