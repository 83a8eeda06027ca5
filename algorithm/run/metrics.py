"""Metrics: one registry of names, written alike to TensorBoard, ``metrics.csv`` and ``metrics.jsonl``.

The x-axis is environment steps everywhere. Formulas stand in ``docs/metrics.md``; a test holds both equal.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from algorithm.errors import StorageError
from algorithm.run.files import write_text
from algorithm.run.names import behaviour_level
from algorithm.spec import DEFAULT_BEHAVIOUR

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

METRICS: Mapping[str, str] = {
    "rollout/return_mean": "mean return of the training episodes that ended since the last summary",
    "rollout/return_min": "smallest return among them",
    "rollout/return_max": "largest return among them",
    "rollout/return_std": "standard deviation of their returns",
    "rollout/length": "mean number of steps of those episodes",
    "eval/return_mean": "mean return of the evaluation episodes, played by the deterministic policy",
    "eval/return_ci95": "half width of the 95 % confidence interval of that mean",
    "eval/length": "mean number of steps of the evaluation episodes",
    "loss/q": "loss of the critics and the encoder",
    "loss/policy": "loss of the policy, the sum over its parts",
    "loss/alpha": "loss of the temperatures, the sum over the parts",
    "value/q_mean": "mean of what the critics say about the stored actions",
    "value/target": "mean of the targets they are trained towards",
    "policy/entropy_c": "entropy of the continuous part of the policy",
    "policy/target_entropy_c": "what that entropy is steered to",
    "policy/alpha_c": "temperature of the continuous part: the worth of a unit of entropy in reward",
    "policy/entropy_d": "entropy of the discrete part of the policy, mean over its branches",
    "policy/target_entropy_d": "what that entropy is steered to",
    "policy/alpha_d": "temperature of the discrete part",
    "vtrace/rho_mean": "mean clipped importance ratio between the policy and the behaviour that was stored",
    "vtrace/clip_frac": "share of the ratios that were clipped",
    "memory/delta_q_first": "ΔQ of R2D2 at the first learned position: the relative difference of Q between "
    "the state made from the window's beginning on and that of the carry stored with its own row",
    "memory/delta_q_last": "the same at the last one; if clearly above the first, the burn-in is too short",
    "replay/size": "rows alive in the replay",
    "replay/priority_mean": "mean TD error of the sampled anchors, from which their priorities are made",
    "replay/is_weight_min": "smallest importance-sampling weight of a batch; the largest is 1",
    "replay/age_mean": "mean age of the sampled anchors",
    "optim/grad_norm": "norm of the gradient of the critics and the encoder before clipping",
    "time/env_steps_per_s": "environment steps per second of wall time",
    "time/updates_per_s": "gradient updates per second of wall time",
    "time/replay_ratio": "achieved gradient updates per environment step",
    "time/share_act": "share of the training time that went into choosing actions",
    "time/share_step": "share that went into stepping and resetting environments",
    "time/share_store": "share that went into storing transitions",
    "time/share_sample": "share that went into sampling batches",
    "time/share_update": "share that went into gradient updates and new priorities",
    "sys/rss_mb": "resident memory of the process",
    "fault/env_restarts": "failures of environments survived so far by starting one anew",
}
"""Every name a run may log, with its meaning."""


class MetricsLogger:
    """Writes rows of metrics to three places; steps strictly increase.

    Values written for one step, by any number of calls and behaviours, become one row. It is committed by
    the first write of a later step, by ``flush`` or by ``close``; from then on that step is closed. Committed
    rows have left the process: a kill loses only what was not committed yet.

    log: folder for TensorBoard's event files, one level deeper per named behaviour.
    csv, jsonl: files that must not exist yet; a named behaviour's columns are ``<behaviour>/<metric>``.
    """

    def __init__(self, log: Path, csv: Path, jsonl: Path) -> None:
        self._sinks: tuple[_Sink, ...] = (_CsvSink(csv), _JsonlSink(jsonl), _TensorBoardSink(log))
        self._closed_step = -1
        self._step = -1
        self._pending: dict[tuple[str, str], float] = {}

    def write(self, step: int, values: Mapping[str, float], *, behaviour: str = DEFAULT_BEHAVIOUR) -> None:
        """Add values to the row of ``step``; NaN and infinity become an empty cell, null, or no point.

        Raises ValueError for a name that is not in ``METRICS``, a value written twice, or a step that is not
        later than the last committed one; StorageError where a file cannot be written.
        """
        for name in values:
            _check_known(name)
        if step <= self._closed_step or step < self._step:
            raise ValueError(f"metrics: step {step} comes after step {max(self._step, self._closed_step)}")
        if step > self._step:
            self._commit()
            self._step = step
        for name, value in values.items():
            if (behaviour, name) in self._pending:
                raise ValueError(f"metrics: {name} was written twice for step {step}")
            self._pending[behaviour, name] = float(value)

    def flush(self) -> None:
        """Commit the row and hand everything to the operating system."""
        self._commit()

    def close(self) -> None:
        """Commit the row and close the files; may be called twice."""
        self._commit()
        for sink in self._sinks:
            sink.close()
        self._sinks = ()

    def _commit(self) -> None:
        if not self._pending:
            return
        row, self._pending = self._pending, {}
        self._closed_step = self._step
        for sink in self._sinks:
            sink.write(self._step, row)


def read_metrics(path: Path) -> dict[str, list[float]]:
    """Columns of a ``metrics.csv``, ``step`` among them; empty cells are NaN.

    A last line without its end, from a killed run, is left out. Raises StorageError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise StorageError.of(error, what="metrics cannot be read", where=path) from error
    except UnicodeDecodeError as error:
        raise StorageError("metrics are damaged", where=path, why=str(error)) from error
    rows = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1])))
    if not rows:
        return {"step": []}
    try:
        cells = [[float(cell) if cell else math.nan for cell in row] for row in rows[1:]]
        return {name: list(column) for name, *column in zip(rows[0], *cells, strict=True)}
    except ValueError as error:
        raise StorageError("metrics are damaged", where=path, why=str(error)) from error


class Rate:
    """Events per second over the last ``window_s`` seconds of wall time."""

    def __init__(self, window_s: float = 20.0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._window_s = window_s
        self._clock = clock
        self._marks: deque[tuple[float, int]] = deque()

    def update(self, count: int) -> float:
        """Tell the total number of events so far and get the rate; NaN until there are two moments."""
        now = self._clock()
        self._marks.append((now, count))
        while len(self._marks) > 2 and now - self._marks[1][0] >= self._window_s:
            self._marks.popleft()
        then, before = self._marks[0]
        return (count - before) / (now - then) if now > then else math.nan


class _Sink(Protocol):
    def write(self, step: int, row: Mapping[tuple[str, str], float]) -> None: ...

    def close(self) -> None: ...


class _CsvSink:
    """A wide table. A column seen for the first time is appended, and the file rewritten with it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns = ["step"]
        self._file = _open(path, "x")

    def write(self, step: int, row: Mapping[tuple[str, str], float]) -> None:
        cells = {"step": str(step)} | {_column(*key): _cell(value) for key, value in row.items()}
        new = [name for name in cells if name not in self._columns]
        if new:
            self._widen(new)
        _append(self._file, self._path, _csv_line([cells.get(name, "") for name in self._columns]))

    def _widen(self, new: list[str]) -> None:
        self._file.close()
        old = self._path.read_text(encoding="utf-8").splitlines(keepends=True)[1:]
        self._columns += new
        rows = [line.rstrip("\n") + "," * len(new) + "\n" for line in old]
        write_text(self._path, _csv_line(self._columns) + "".join(rows))
        self._file = _open(self._path, "a")

    def close(self) -> None:
        self._file.close()


class _JsonlSink:
    """One object a line, ``step`` first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _open(path, "x")

    def write(self, step: int, row: Mapping[tuple[str, str], float]) -> None:
        values = {_column(*key): value if math.isfinite(value) else None for key, value in row.items()}
        _append(self._file, self._path, json.dumps({"step": step, **values}, allow_nan=False) + "\n")

    def close(self) -> None:
        self._file.close()


class _TensorBoardSink:
    """One event file per behaviour. Opened by the first row: its import takes seconds."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._writers: dict[str, SummaryWriter] = {}

    def write(self, step: int, row: Mapping[tuple[str, str], float]) -> None:
        for (behaviour, name), value in row.items():
            if math.isfinite(value):
                self._writer(behaviour).add_scalar(name, value, step)
        for writer in self._writers.values():
            writer.flush()

    def _writer(self, behaviour: str) -> SummaryWriter:
        if behaviour not in self._writers:
            from torch.utils.tensorboard import SummaryWriter

            self._writers[behaviour] = SummaryWriter(str(self._log / behaviour_level(behaviour)))
        return self._writers[behaviour]

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


def _check_known(name: str) -> None:
    if name in METRICS:
        return
    close = difflib.get_close_matches(name, METRICS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise ValueError(f"metrics: {name!r} is not in METRICS{hint}")


def _column(behaviour: str, name: str) -> str:
    return name if behaviour == DEFAULT_BEHAVIOUR else f"{behaviour}/{name}"


def _cell(value: float) -> str:
    return repr(value) if math.isfinite(value) else ""


def _csv_line(cells: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _open(path: Path, mode: str) -> IO[str]:
    try:
        return path.open(mode, encoding="utf-8", newline="")
    except OSError as error:
        raise StorageError.of(error, what="metrics cannot be written", where=path) from error


def _append(file: IO[str], path: Path, line: str) -> None:
    try:
        file.write(line)
        file.flush()
    except OSError as error:
        raise StorageError.of(error, what="metrics cannot be written", where=path) from error
