"""The one reader of a run's files: plain files of a bounded size, UTF-8, strict JSON.

Any file in a run's folder may be damaged, or come from another person. A named pipe would be waited for
without end, a device may never end. Some JSON is valid in Python only (NaN, infinity,
a whole number of a million digits) and breaks later steps.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

from algorithm.core.errors import StorageError
from algorithm.core.system.files import open_file

TEXT = 64 * 2**20
"""Default maximum size in bytes of a file of text."""

_BLOCK = 2**20  # bytes
_DIGITS = 40  # of a whole number: the states of random generators have 128 bits
_ZIP_END = 56 + 20 + 22  # bytes of the records at the end of a zip: two of a large one, and the last


def open_plain(path: Path, limit: int, *, follow: bool = False) -> BinaryIO:
    """Open a plain file of at most ``limit`` bytes; a symbolic link only with ``follow``.

    Raises OSError from the system, and ValueError for another kind of file.
    """
    try:
        handle = open_file(path, os.O_RDONLY, follow=follow)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError("it is a symbolic link") from error
        if error.errno == errno.ENXIO:  # a socket
            raise ValueError("it is not a regular file") from error
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise ValueError("it is not a regular file")
    if status.st_size > limit:
        os.close(handle)
        raise ValueError(f"it has {status.st_size:,} bytes, far too many")
    return os.fdopen(handle, "rb")


def check_zip(file: BinaryIO, limit: int) -> None:
    """Raise ValueError for a zip whose directory has more than ``limit`` bytes: ``zipfile`` reads all of it.

    Raises BadZipFile for a file that does not end as a zip without a comment does.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _ZIP_END))
    tail = file.read().rjust(_ZIP_END, b"\0")
    locator, record = tail[56:76], tail[76:]
    if record[:4] != b"PK\5\6" or record[-2:] != b"\0\0":
        raise BadZipFile("it is not a zip file, or it is cut off")
    size = int.from_bytes(record[12:16], "little")
    if locator[:4] == b"PK\6\7":  # sizes beyond 4 GiB, or more than 65,535 members
        if tail[:4] != b"PK\6\6" or int.from_bytes(locator[8:16], "little") != end - _ZIP_END:
            raise BadZipFile("its directory is not at the stated position")
        size = int.from_bytes(tail[40:48], "little")
    if size > limit:
        raise ValueError(f"its directory has {size:,} bytes, far too many")
    file.seek(0)


def read_bytes(path: Path, limit: int = TEXT, *, follow: bool = False) -> bytes:
    """Return the content of a file opened as by :func:`open_plain`. Raises OSError and ValueError."""
    with open_plain(path, limit, follow=follow) as file:
        data = bytearray()
        while block := file.read(_BLOCK):
            data += block
            if len(data) > limit:
                raise ValueError("it grows while it is read")
    return bytes(data)


def read_text(path: Path, limit: int = TEXT, *, follow: bool = False) -> str:
    """Return the same as :func:`read_bytes`, as text. Raises ValueError also for bytes that are no UTF-8."""
    return read_bytes(path, limit, follow=follow).decode("utf-8")


def parse_json(data: bytes | str) -> Any:  # noqa: ANN401 - whatever the JSON spells
    """Return a value of strict JSON: finite numbers, integers of at most 40 digits.

    Raises ValueError with a one-line reason.
    """
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path, limit: int = TEXT) -> dict[str, Any]:
    """Return the JSON object in a file. Raises StorageError with the file and its fault."""
    try:
        value = parse_json(read_bytes(path, limit))
    except OSError as error:
        raise StorageError.of(error, what="a file cannot be read", where=path) from error
    except ValueError as error:
        raise StorageError("a JSON file is damaged", where=path, why=str(error)) from error
    if not isinstance(value, dict):
        raise StorageError("a JSON file is damaged", where=path, why="it does not hold an object")
    return value


def read_lines(path: Path, limit: int = TEXT) -> list[str]:
    """Return the lines of a UTF-8 file, without line feeds; none for an empty file.

    limit: largest size in bytes
    Raises StorageError if the file cannot be read, is larger, or is not UTF-8.
    """
    try:
        text = read_text(path, limit)
    except OSError as error:
        raise StorageError.of(error, what="a file cannot be read", where=path) from error
    except ValueError as error:
        raise StorageError("a file is damaged", where=path, why=str(error)) from error
    return text.removesuffix("\n").split("\n") if text else []


def _no_number(text: str) -> float:
    """Raise ValueError: JSON has no NaN and no infinity."""
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    """Parse a number with a fraction or exponent. Raises ValueError if it is infinite."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value


def _whole(text: str) -> int:
    """Parse an integer. Raises ValueError for one with too many digits."""
    if len(text) > _DIGITS:
        raise ValueError(f"a whole number has {len(text)} digits")
    return int(text)
