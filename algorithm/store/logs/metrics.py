"""Metrics, written alike to TensorBoard, ``metrics.jsonl``, ``metrics.csv`` and W&B.

The x-axis is environment steps everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from algorithm.core.errors import StorageError
from algorithm.core.reading import read_text
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.store.files import write_text
from algorithm.store.logs.events import EVENT_FILES, event_file, event_of
from algorithm.store.logs.registry import check_known
from algorithm.store.logs.rows import (
    MOST,
    RecordFile,
    Row,
    csv_table,
    cut_back,
    json_line,
    metrics_errors,
    parse_row,
)
from algorithm.store.logs.upload import Upload
from algorithm.store.names import behaviour_level

_TOO_MANY = 2**53  # steps: beyond it not every integer is a float


class MetricsLogger:
    """A log of metrics in three places; steps strictly increase in each.

    Values written for one step, by any number of calls and behaviours, become one row. It is committed by
    the first write of a later step, by ``flush`` or by ``close``; from then on that step is closed. Committed
    rows have left the process, so a kill loses only what was not committed.

    Rows go to the JSON lines and to TensorBoard at once. The table is written whole with every ``state`` and
    with ``close``. On a full disk rows wait in memory for the next commit. An upload gets each row
    at once as well.

    log: folder for TensorBoard's event files, one level deeper per named behaviour.
    csv, jsonl: files that must not exist yet; a named behaviour's columns are ``<behaviour>/<metric>``.
    warn: called when rows cannot be written, and when they could be written later.
    state: of another logger with the same files, to continue from: rows written after it are dropped, in
        TensorBoard by a purge.
    upload: receiver of the rows on another machine
    Raises StorageError if the files cannot be created, or be cut back to ``state``.
    """

    def __init__(
        self,
        log: Path,
        csv: Path,
        jsonl: Path,
        *,
        warn: Callable[[str], None],
        state: Mapping[str, Any] | None = None,
        upload: Upload | None = None,
    ) -> None:
        self._log = log
        self._csv = csv
        self._warn = warn
        self._upload = upload
        self._closed_step = -1
        self._step = -1
        self._pending: dict[tuple[str, str], float] = {}
        self._rows = RecordFile(jsonl, begun=True)
        self._events: dict[Path, RecordFile] = {}
        self._purge: int | None = None
        self._table_error: StorageError | None = None
        self._failing = False
        with metrics_errors(log):
            log.mkdir(exist_ok=True)
        if state is None:
            for file in (csv, jsonl):
                with metrics_errors(file):
                    file.open("xb").close()
        else:
            self._take_over(state)
        self._table_step = self._closed_step
        if upload:
            upload.start(None if state is None else state.get("wandb"), _rows_of(jsonl))

    def is_closed(self, step: int) -> bool:
        """Return whether the row of ``step`` is committed, so that nothing can be added to it."""
        return step <= self._closed_step

    def write(self, step: int, values: Mapping[str, float], *, behaviour: str = DEFAULT_BEHAVIOUR) -> None:
        """Add values to the row of ``step``; NaN and infinity become an empty cell, null, or no point.

        Raises UsageError for a name that is not in ``METRICS``, ValueError for a value written twice, or a
        step that is not later than the last committed one.
        """
        for name in values:
            check_known(name)
        if self.is_closed(step) or step < self._step:
            raise ValueError(f"metrics: step {step} comes after step {max(self._step, self._closed_step)}")
        if step > self._step:
            self.flush()
            self._step = step
        for name, value in values.items():
            if (behaviour, name) in self._pending:
                raise ValueError(f"metrics: {name} was written twice for step {step}")
            self._pending[behaviour, name] = float(value)

    def flush(self) -> None:
        """Commit the row and hand everything to the operating system."""
        if self._pending:
            self._closed_step = self._step
            self._commit()
        else:
            for file in self._files:
                file.retry()
        self._report_failure()

    def state(self) -> dict[str, object]:
        """Flush committed rows to disk; return the state to continue from, as strict JSON.

        Rows that still wait for the disk are not part of it.
        """
        for file in self._files:
            file.sync()
        self._write_table()
        self._report_failure()
        return {
            "closed_step": self._closed_step,
            "step": self._step,
            "pending": [
                [behaviour, name, value if math.isfinite(value) else None]
                for (behaviour, name), value in self._pending.items()
            ],
            "wandb": self._upload.state() if self._upload else None,
        }

    def close(self) -> None:
        """Commit the row, and try once more to write rows that wait; may be called twice."""
        self.flush()
        self._write_table()
        self._report_failure()
        missing = [f"{file.waiting} in {file.path}" for file in self._files if file.waiting]
        if missing:
            self._warn(f"rows of metrics are lost: {', '.join(missing)}")
        if self._upload:
            self._upload.close()

    @property
    def _files(self) -> list[RecordFile]:
        """All files with rows."""
        return [self._rows, *self._events.values()]

    def _commit(self) -> None:
        """Write the pending row to all logs."""
        row = {_column(*key): value for key, value in self._pending.items()}
        self._rows.write(json_line(self._step, row))
        if self._upload:
            self._upload.write(self._step, row)
        for behaviour in dict.fromkeys(behaviour for behaviour, _ in self._pending):
            of_behaviour = {
                name: value for (whose, name), value in self._pending.items() if whose == behaviour
            }
            self._events_of(self._log / behaviour_level(behaviour)).write(event_of(self._step, of_behaviour))
        self._pending = {}

    def _write_table(self) -> None:
        """Write the table if rows were added; an error waits for the next attempt."""
        if self._table_step == self._closed_step:
            return
        self._table_error = None
        try:
            write_table(self._csv, self._rows.path)
        except StorageError as error:
            self._table_error = error
            return
        if not self._rows.waiting:
            self._table_step = self._closed_step

    def _events_of(self, folder: Path) -> RecordFile:
        """Return the event file for a folder, a new one at first."""
        if folder not in self._events:
            self._events[folder] = event_file(folder, self._purge)
        return self._events[folder]

    def _take_over(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, and cut all files back to it."""
        self._closed_step = state["closed_step"]
        self._step = state["step"]
        self._purge = self._closed_step + 1
        for behaviour, name, value in state["pending"]:
            self._pending[behaviour, name] = math.nan if value is None else value
        cut_back(self._rows.path, self._closed_step, self._warn)
        write_table(self._csv, self._rows.path)
        # At once, and not with the next row: until then TensorBoard would show what has been dropped.
        for folder in sorted({path.parent for path in self._log.rglob(EVENT_FILES)}):
            self._events_of(folder).write(b"")
        self._report_failure()

    def _report_failure(self) -> None:
        """Warn when writing begins to fail, and when it works again."""
        errors = (*(file.error for file in self._files), self._table_error)
        error = next((error for error in errors if error is not None), None)
        if error and not self._failing:
            self._warn(f"{error.line} · training continues, the rows wait in memory")
        if self._failing and not error:
            self._warn("metrics are written again, no row was lost")
        self._failing = error is not None


def read_metrics(path: Path) -> dict[str, list[float]]:
    """Return the columns of a ``metrics.jsonl``, ``step`` among them; NaN where a row has no value.

    A last line without its end, from a killed run, is left out. Raises StorageError.
    """
    columns: dict[str, list[float]] = {"step": []}
    try:
        for count, line in enumerate(read_text(path, MOST).split("\n")[:-1]):
            row = parse_row(line)
            before, step = columns["step"][-1] if count else -1, row["step"]
            if not before < step < _TOO_MANY:
                raise ValueError(f"the step {step:g} follows the step {before:g}")
            for name in row:
                if name not in columns:
                    columns[name] = [math.nan] * count
            for name, column in columns.items():
                column.append(float(row.get(name, math.nan)))
    except OSError as error:
        raise StorageError.of(error, what="metrics cannot be read", where=path) from error
    except ValueError as error:
        raise StorageError("metrics are damaged", where=path, why=str(error)) from error
    return columns


def _rows_of(jsonl: Path) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a ``metrics.jsonl``, which is opened with the first one."""
    columns = read_metrics(jsonl)
    for step, *values in zip(*columns.values(), strict=True):
        yield int(step), dict(zip(list(columns)[1:], values, strict=True))


def write_table(csv: Path, jsonl: Path) -> None:
    """Replace the table ``csv`` by the rows of ``jsonl``. Raises StorageError, with the table unchanged."""
    text = csv_table(read_metrics(jsonl))
    with metrics_errors(csv):
        write_text(csv, text)


def _column(behaviour: str, name: str) -> str:
    """Return the name of a metric's column; that of a named behaviour has its name in front."""
    return name if behaviour == DEFAULT_BEHAVIOUR else f"{behaviour}/{name}"
