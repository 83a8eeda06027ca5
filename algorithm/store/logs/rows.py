"""Rows of metrics on the disk: ``metrics.jsonl``, the table ``metrics.csv``, files of whole records."""

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

from algorithm.core.errors import StorageError
from algorithm.core.reading import parse_json, read_bytes, read_text
from algorithm.store.files import GrowingFile, write_text

MOST = 2**30
"""Maximum size in bytes of a file of metrics."""

Row = Mapping[str, float]
"""Values by column; NaN and infinity become null, an empty cell, or no point."""


class RecordFile:
    """A file of whole records. Records that a full disk refuses wait in memory for the next attempt.

    begun: the file exists and is never created again; else it is created with the first record, in a new
           folder if need be, but without the folders above: a run that was moved away is not begun again
    head:  bytes in front of the first record
    error: error of the last attempt; None if it succeeded
    """

    def __init__(self, path: Path, *, begun: bool, head: bytes = b"") -> None:
        self.path = path
        self.error: StorageError | None = None
        self._file = GrowingFile(path)
        self._begun = begun
        self._head = head
        self._waiting: deque[bytes] = deque()

    @property
    def waiting(self) -> int:
        """Number of records that have not been written."""
        return len(self._waiting)

    def write(self, record: bytes) -> None:
        """Write a record, after all records that wait."""
        self._waiting.append(self._head + record)
        self._head = b""
        self.retry()

    def retry(self) -> None:
        """Write the records that wait, as far as possible."""
        self._attempt(self._write_waiting)

    def sync(self) -> None:
        """Write the records that wait, and flush the file to the disk."""
        self.retry()
        if self.error is None:
            self._attempt(self._file.sync)

    def _write_waiting(self) -> None:
        """Append the waiting records, one after the other. Raises OSError."""
        while self._waiting:
            if not self._begun:
                self.path.parent.mkdir(exist_ok=True)
            elif not self.path.exists():  # a new one would begin in the middle, and the table after it
                raise FileNotFoundError(errno.ENOENT, "it was removed while the run wrote to it")
            self._file.append(self._waiting[0])
            self._waiting.popleft()

    def _attempt(self, act: Callable[[], None]) -> None:
        """Call a function; keep its error as :attr:`error`."""
        self.error = None
        try:
            with metrics_errors(self.path):
                act()
        except StorageError as error:
            self.error = error


def json_line(step: int, row: Row) -> bytes:
    """Return a row as JSON and a line feed: ``step`` first, null for numbers that are not finite."""
    values = {name: value if math.isfinite(value) else None for name, value in row.items()}
    return f"{json.dumps({'step': step, **values}, allow_nan=False)}\n".encode()


def parse_row(line: str) -> dict[str, float]:
    """Parse a line of JSON into values, ``step`` among them; null is NaN. Raises ValueError."""
    row = parse_json(line)
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        raise ValueError("not an object with a step")
    for name, value in row.items():
        if type(value) not in (int, float, type(None)):
            raise ValueError(f"{name} is not a number")
    return {name: math.nan if value is None else value for name, value in row.items()}


def read_points(path: Path, metric: str) -> list[tuple[int, float]]:
    """Return (step, value) of every row with a metric: its mean over behaviours, NaN if one has no number.

    Suits files that are being written: a missing one has no rows, and a torn line is left out.
    """
    try:
        lines = [line for line in read_text(path, MOST).splitlines() if f'{metric}"' in line]
    except (OSError, ValueError):
        return []
    points = []
    for line in lines:
        with contextlib.suppress(ValueError):
            row = parse_row(line)
            values = [value for name, value in row.items() if name == metric or name.endswith(f"/{metric}")]
            if values:
                points.append((int(row["step"]), math.fsum(values) / len(values)))
    return points


def cut_back(path: Path, last: int, warn: Callable[[str], None]) -> None:
    """Cut a ``metrics.jsonl`` back to its rows up to the step ``last``. Raises StorageError.

    Rows that cannot be parsed are dropped as well, with a warning; a last line without its end was torn by a
    kill. A missing file begins anew, with a warning.
    """
    try:
        lines = read_bytes(path, MOST).decode("utf-8", "replace").split("\n")[:-1]
    except FileNotFoundError:
        warn(f"{path} is gone; starting a new one, and a new metrics.csv")
        lines = []
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        what = "metrics cannot be read"
        raise StorageError(what, where=path, why=why, fix="move it away") from error
    kept, damaged, before = list[str](), 0, -1.0
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
    write_text(path, "".join(f"{line}\n" for line in kept))


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


@contextlib.contextmanager
def metrics_errors(path: Path) -> Iterator[None]:
    """Convert errors of the operating system in the block to StorageErrors about metrics at ``path``."""
    try:
        yield
    except OSError as error:
        raise StorageError.of(error, what="metrics cannot be written", where=path) from error
    except ValueError as error:  # such as a folder in the place of the file
        raise StorageError("metrics cannot be written", where=path, why=str(error)) from error
