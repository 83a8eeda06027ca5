"""Rows of metrics on the disk: ``metrics.csv`` and ``metrics.jsonl``; for TensorBoard ``events.py``.

A sink either has the whole row or, after a StorageError, nothing of it. Those of a resumed run first drop all
that lies behind the last row that counts.
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
from typing import Protocol

from algorithm.errors import StorageError
from algorithm.reading import parse_json, read_bytes
from algorithm.runs.files import GrowingFile, write_text

MOST = 2**30
"""Bytes of a file of metrics that is read."""

Row = Mapping[str, float]
"""Values by column; NaN and infinity become an empty cell, null, or no point."""


class Sink(Protocol):
    """Takes rows in the order of their steps."""

    @property
    def path(self) -> Path:
        """The file or folder they go to."""
        ...

    def write(self, step: int, row: Row) -> None:
        """Raises StorageError; nothing of the row counts as written then."""
        ...

    def sync(self) -> None:
        """Make what was written survive a power cut. Raises StorageError."""
        ...


class Patient:
    """Gives rows to a sink, and keeps those that could not be written until they can.

    error: what went wrong at the last attempt; None if all went well
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._waiting: deque[tuple[int, Row]] = deque()
        self.error: StorageError | None = None

    @property
    def path(self) -> Path:
        """See :class:`Sink`."""
        return self._sink.path

    @property
    def waiting(self) -> int:
        """How many rows have not been written."""
        return len(self._waiting)

    def write(self, step: int, row: Row) -> None:
        """The row, after all that wait."""
        self._waiting.append((step, row))
        self.retry()

    def retry(self) -> None:
        """Write what waits, as far as it can be."""
        self._attempt(self._write_waiting)

    def sync(self) -> None:
        """Write what waits, and make it survive a power cut."""
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


class CsvSink:
    """A wide table. A column seen for the first time is appended, and the file rewritten with it.

    Make it with ``create`` or ``resume``.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._file = GrowingFile(path)
        self.columns = list(columns)

    @classmethod
    def create(cls, path: Path) -> CsvSink:
        """For a file that must not exist yet. Raises StorageError."""
        _create(path)
        return cls(path, ["step"])

    @classmethod
    def resume(cls, path: Path, last: int, columns: Sequence[str], warn: Callable[[str], None]) -> CsvSink:
        """Cut the file back to its rows up to the step ``last`` and to the columns that there were then.

        Rows that cannot be read go as well, with a warning. Raises StorageError.
        """
        header, *lines = _whole_lines(path, warn) or [csv_line(columns)]
        names = _names(header)
        if not names:
            warn(f"{path}: the names of its columns are damaged, its rows are dropped")
            names, lines = list(columns), []
        known = list(columns) if names[: len(columns)] == list(columns) else names
        rows = _up_to(last, lines, lambda line: _step_of_cells(line.split(","), len(names)), path, warn)
        text = csv_line(known) + "".join(",".join(row.split(",")[: len(known)]) + "\n" for row in rows)
        _replace(path, "" if known == ["step"] else text)
        return cls(path, known)

    @property
    def path(self) -> Path:
        """See :class:`Sink`."""
        return self._file.path

    def write(self, step: int, row: Row) -> None:
        """See :class:`Sink`."""
        cells = {"step": str(step)} | {name: _cell(value) for name, value in row.items()}
        new = [name for name in cells if name not in self.columns]
        with naming(self.path):
            if not self.path.exists():  # a new one would begin without the names of its columns
                raise FileNotFoundError(errno.ENOENT, "it was removed while the run wrote to it")
            if new:
                self._widen(new)
            self._file.append(csv_line([cells.get(name, "") for name in self.columns]).encode())

    def _widen(self, new: Sequence[str]) -> None:
        columns = [*self.columns, *new]
        rows = _lines(self.path)[1:]
        write_text(self.path, csv_line(columns) + "".join(f"{row}{',' * len(new)}\n" for row in rows))
        self.columns = columns
        self._file = GrowingFile(self.path)  # what was torn at the end of the other file is not in this one

    def sync(self) -> None:
        """See :class:`Sink`."""
        with naming(self.path):
            self._file.sync()


class JsonlSink:
    """One object a line, ``step`` first. Make it with ``create`` or ``resume``."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)

    @classmethod
    def create(cls, path: Path) -> JsonlSink:
        """For a file that must not exist yet. Raises StorageError."""
        _create(path)
        return cls(path)

    @classmethod
    def resume(cls, path: Path, last: int, warn: Callable[[str], None]) -> JsonlSink:
        """Cut the file back to its rows up to the step ``last``; otherwise as that of :class:`CsvSink`."""
        rows = _up_to(last, _whole_lines(path, warn), _step_of_object, path, warn)
        _replace(path, "".join(f"{row}\n" for row in rows))
        return cls(path)

    @property
    def path(self) -> Path:
        """See :class:`Sink`."""
        return self._file.path

    def write(self, step: int, row: Row) -> None:
        """See :class:`Sink`."""
        values = {name: value if math.isfinite(value) else None for name, value in row.items()}
        line = json.dumps({"step": step, **values}, allow_nan=False)
        with naming(self.path):
            self._file.append(f"{line}\n".encode())

    def sync(self) -> None:
        """See :class:`Sink`."""
        with naming(self.path):
            self._file.sync()


def csv_line(cells: Sequence[str]) -> str:
    """One line of a CSV file, its end included."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _cell(value: float) -> str:
    return repr(value) if math.isfinite(value) else ""


def _create(path: Path) -> None:
    with naming(path):
        path.open("x").close()


def _replace(path: Path, text: str) -> None:
    if not path.exists() or read_bytes(path, MOST) != text.encode():
        write_text(path, text)


def _lines(path: Path) -> list[str]:
    """Without their ends, and without a last one that has none: it was torn by a kill."""
    return read_bytes(path, MOST).decode("utf-8", "replace").split("\n")[:-1]


def _whole_lines(path: Path, warn: Callable[[str], None]) -> list[str]:
    try:
        return _lines(path)
    except FileNotFoundError:
        warn(f"{path} is gone; it begins anew")
        return []
    except OSError as error:
        raise StorageError.of(error, what="metrics cannot be read", where=path) from error
    except ValueError as error:
        raise StorageError(
            "metrics cannot be read", where=path, why=str(error), fix="move it away"
        ) from error


def _up_to(
    last: int, lines: Sequence[str], step_of: Callable[[str], int], path: Path, warn: Callable[[str], None]
) -> list[str]:
    """The lines of steps that strictly increase up to ``last``; ``step_of`` raises ValueError for damage."""
    kept, damaged, before = [], 0, -1
    for line in lines:
        try:
            step = step_of(line)
        except ValueError:
            damaged += 1
            continue
        if before < step <= last:
            kept.append(line)
            before = step
    if damaged:
        warn(f"{path}: {damaged} damaged line{'s' * (damaged > 1)} dropped")
    return kept


def _names(header: str) -> list[str]:
    """The names of the columns; none if the line does not give them."""
    try:
        names = next(csv.reader([header]), [])
    except csv.Error:
        return []
    return names if names[:1] == ["step"] and len(set(names)) == len(names) else []


def _step_of_cells(cells: Sequence[str], columns: int) -> int:
    if len(cells) != columns:
        raise ValueError(f"{len(cells)} cells for {columns} columns")
    for cell in cells[1:]:
        float(cell or "nan")
    return int(cells[0])


def _step_of_object(line: str) -> int:
    value = parse_json(line)
    if not isinstance(value, dict) or type(value.get("step")) is not int:
        raise ValueError("no object with a step")
    step: int = value["step"]
    return step


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the operating system become StorageErrors about metrics at ``path``."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(error, what="metrics cannot be written", where=path) from error
    except ValueError as error:  # something else stands in their place
        raise StorageError("metrics cannot be written", where=path, why=str(error)) from error
