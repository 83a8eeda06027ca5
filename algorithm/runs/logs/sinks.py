"""Rows of metrics on the disk: ``metrics.jsonl``, and the table ``metrics.csv`` that follows from it.

A sink has a row whole or, after a StorageError, not at all. One of a resumed run first drops every row behind
the last one that counts. The sink of TensorBoard stands in ``events.py``.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from algorithm.core.errors import StorageError
from algorithm.core.reading import parse_json, read_bytes
from algorithm.runs.files import GrowingFile, write_text

MOST = 2**30
"""Maximum size in bytes of a file of metrics."""

Row = Mapping[str, float]
"""Values by column; NaN and infinity become null, an empty cell, or no point."""

_Row = TypeVar("_Row")
_Row_contra = TypeVar("_Row_contra", contravariant=True)


class Sink(Protocol[_Row_contra]):
    """A destination of rows, in the order of their steps."""

    @property
    def path(self) -> Path:
        """The file or folder."""
        ...

    def write(self, step: int, row: _Row_contra) -> None:
        """Write a row. Raises StorageError, with nothing of the row written."""
        ...

    def sync(self) -> None:
        """Flush to the disk what was written. Raises StorageError."""
        ...


class Patient(Generic[_Row]):
    """A sink with a queue of the rows that could not be written yet.

    error: that of the last attempt; None if it succeeded
    """

    def __init__(self, sink: Sink[_Row]) -> None:
        self._sink = sink
        self._waiting: deque[tuple[int, _Row]] = deque()
        self.error: StorageError | None = None

    @property
    def path(self) -> Path:
        """Path of the wrapped sink's file."""
        return self._sink.path

    @property
    def waiting(self) -> int:
        """Number of rows that have not been written."""
        return len(self._waiting)

    def write(self, step: int, row: _Row) -> None:
        """Write the row after all that wait."""
        self._waiting.append((step, row))
        self.retry()

    def retry(self) -> None:
        """Write what waits, as far as possible."""
        self._attempt(self._write_waiting)

    def sync(self) -> None:
        """Write what waits, and flush it to the disk."""
        self.retry()
        if self.error is None:
            self._attempt(self._sink.sync)

    def _write_waiting(self) -> None:
        while self._waiting:
            self._sink.write(*self._waiting[0])
            self._waiting.popleft()

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            act()
        except StorageError as error:
            self.error = error
        else:
            self.error = None


class JsonlSink:
    """One object a line, ``step`` first. Make it with ``create`` or ``resume``."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)

    @classmethod
    def create(cls, path: Path) -> JsonlSink:
        """Create the file, which must not exist yet. Raises StorageError."""
        create_empty(path)
        return cls(path)

    @classmethod
    def resume(cls, path: Path, last: int, warn: Callable[[str], None]) -> JsonlSink:
        """Cut the file back to its rows up to the step ``last``. Raises StorageError.

        Rows that cannot be parsed are dropped as well, with a warning.
        """
        text = "".join(f"{line}\n" for line in _up_to(last, _whole_lines(path, warn), path, warn))
        if not path.exists() or read_bytes(path, MOST) != text.encode():
            write_text(path, text)
        return cls(path)

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._file.path

    def write(self, step: int, row: Row) -> None:
        """Append the row as a line of JSON, numbers that are not finite as null."""
        values = {name: value if math.isfinite(value) else None for name, value in row.items()}
        line = json.dumps({"step": step, **values}, allow_nan=False)
        with naming(self.path):
            if not self.path.exists():  # a new one would begin in the middle, and the table after it
                raise FileNotFoundError(errno.ENOENT, "it was removed while the run wrote to it")
            self._file.append(f"{line}\n".encode())

    def sync(self) -> None:
        """Force the written rows to the disk."""
        with naming(self.path):
            self._file.sync()


def parse_row(line: str) -> dict[str, float]:
    """Parse a line of JSON into values, ``step`` among them; null is NaN. Raises ValueError."""
    row = parse_json(line)
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        raise ValueError("no object with a step")
    for name, value in row.items():
        if type(value) not in (int, float, type(None)):
            raise ValueError(f"{name} is no number")
    return {name: math.nan if value is None else value for name, value in row.items()}


def csv_table(columns: Mapping[str, Sequence[float]]) -> str:
    """Format a CSV file, empty without rows; values that are not finite are empty cells."""
    if not columns["step"]:
        return ""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for step, *values in zip(*columns.values(), strict=True):
        writer.writerow([int(step), *(repr(value) if math.isfinite(value) else "" for value in values)])
    return text.getvalue()


def create_empty(path: Path) -> None:
    """Create a file that must not exist yet. Raises StorageError."""
    with naming(path):
        path.open("xb").close()


def _whole_lines(path: Path, warn: Callable[[str], None]) -> list[str]:
    """Read lines without their ends; a last one that has none was torn by a kill, and is left out."""
    try:
        return read_bytes(path, MOST).decode("utf-8", "replace").split("\n")[:-1]
    except FileNotFoundError:
        warn(f"{path} is gone; it begins anew, and metrics.csv with it")
        return []
    except OSError as error:
        raise StorageError.of(error, what="metrics cannot be read", where=path) from error
    except ValueError as error:
        raise StorageError(
            "metrics cannot be read", where=path, why=str(error), fix="move it away"
        ) from error


def _up_to(last: int, lines: Sequence[str], path: Path, warn: Callable[[str], None]) -> list[str]:
    """Return the lines of steps that strictly increase up to ``last``."""
    kept, damaged, before = [], 0, -1.0
    for line in lines:
        try:
            step = parse_row(line)["step"]
        except ValueError:
            damaged += 1
            continue
        if before < step <= last:
            kept.append(line)
            before = step
    if damaged:
        warn(f"{path}: {damaged} damaged line{'s' * (damaged > 1)} dropped")
    return kept


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into StorageErrors about metrics at ``path``."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(error, what="metrics cannot be written", where=path) from error
    except ValueError as error:  # such as a folder in the place of the file
        raise StorageError("metrics cannot be written", where=path, why=str(error)) from error
