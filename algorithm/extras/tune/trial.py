"""Runs of a study, as processes of ``main.py``, and the trials that consist of them."""

from __future__ import annotations

import math
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any, Literal

from algorithm.config.extras_config import TuneConfig
from algorithm.config.yaml_io import inline
from algorithm.core.program import python_arguments
from algorithm.core.system.launch import launcher
from algorithm.core.system.processes import KILL, NEW_GROUP, ending, send_signal
from algorithm.extras.tune.optimiser import Optimiser
from algorithm.extras.tune.records import TrialRecord
from algorithm.extras.tune.space import without_effect
from algorithm.store.lock import holder_of
from algorithm.store.logs.rows import read_points
from algorithm.store.rundir import RunDir

OUTPUT = "output"
"""Folder in a study's, with the output of its runs."""

_KILLS = 2  # after which a run is not started again
_TERMINATED = 128 + signal.SIGTERM
_SAVE_S = 120.0  # for a run to save

RunState = Literal["running", "done", "failed"]


@dataclass(frozen=True)
class RunPlan:
    """Common settings of all runs of a study.

    study:  its folder
    begin:  flags of a run that starts, but not of a resumed one
    always: flags of every run
    length: steps of a run, 0 without a limit
    every:  steps between two values of the metric, 0 if they are not evaluations
    algorithm: the section's, unless a run's values choose another one
    """

    study: RunDir
    tune: TuneConfig
    begin: Sequence[str]
    always: Sequence[str]
    length: int
    every: int
    algorithm: str


class StudyRun:
    """A run of a study, in a process of its own that ends with this one.

    name:   of its folder, within the study's
    values: dotted path -> value, set by this run
    why:    reason of a failure
    """

    def __init__(self, plan: RunPlan, name: str, values: Mapping[str, object], seed: int) -> None:
        study = plan.study
        self.run = RunDir(study.env, f"{study.name}/{name}", study.path / name, study.argument)
        self.why = ""
        self._plan = plan
        fit = fitting(values, plan.algorithm)
        self._words = [word for path, value in fit.items() for word in ("-o", f"{path}={inline(value)}")]
        self._words += ["--seed", str(seed)]
        self._output = study.path / OUTPUT / f"{name}.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._kills = 0
        self._printed_before = 0  # bytes of the output of earlier starts
        self._stop_requested = False  # a second signal would end the run while it saves
        self._size = -1  # of the file of metrics at the last reading
        self._points: list[tuple[int, float]] = []

    def advance(self) -> RunState:
        """Start or resume the run if it has no process, and return its state, without waiting.

        A run that was killed is resumed, at most twice.
        """
        if self._process is None:
            if self._is_over():
                return "done"
            if self._is_locked():
                return "running"
            self._process = self._start()
        code = self._process.poll()
        if code is None:
            return "running"
        self._process = None
        if code == 0:
            return "done"
        if (code < 0 or code == _TERMINATED) and self._kills < _KILLS:
            self._kills += 1
            return "running"
        self.why = f"{ending(code)}: {self._last_error()}"
        return "failed"

    def request_stop(self) -> None:
        """Signal the run to save and end, without waiting for it."""
        if self._process is not None and self._process.poll() is None and not self._stop_requested:
            self._stop_requested = True
            send_signal(self._process.pid, signal.SIGTERM)

    def stop(self) -> None:
        """Signal the run to save and end, and wait for it; kill it after two minutes."""
        self.request_stop()
        if self._process is None:
            return
        try:
            self._process.wait(_SAVE_S)
        except subprocess.TimeoutExpired:
            send_signal(self._process.pid, KILL)
            self._process.wait()
        self._process = None

    def points(self) -> list[tuple[int, float]]:
        """Return (step, value) of the metric so far; the file is read again if it has grown."""
        file = self.run.metrics_jsonl
        size = file.stat().st_size if file.exists() else 0
        if size != self._size:
            read = read_points(file, self._plan.tune.metric)
            self._points = [(step, value) for step, value in read if math.isfinite(value)]
            self._size = size
        return self._points

    def _is_over(self) -> bool:
        """Return whether the run is complete; one that a signal stopped before its end is not."""
        if not self.run.result.is_file():
            return False
        result: Any = self.run.read_result()
        # A signal may come after the last evaluation, while the run saves.
        evaluated = (result.get("last_eval") or {}).get("step", 0)
        at_end = 0 < self._plan.length <= evaluated == result["steps"]
        return bool(at_end or result["ended"]["by"] != "signal")

    def _is_locked(self) -> bool:
        """Return whether a process of this machine holds the run's lock: it outlived a killed study."""
        holder = holder_of(self.run.lock)
        return holder is not None and not holder.is_elsewhere

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the run's process, as a resume if there is a checkpoint."""
        plan, run = self._plan, self.run
        resumes = run.config.exists() and any(run.checkpoints.glob("step_*"))
        if not resumes and run.path.exists():  # it was killed before its first checkpoint
            shutil.rmtree(run.path)
        flags = ["--resume"] if resumes else [*plan.begin, *self._words]
        words = [*python_arguments(), run.argument, "-n", run.name, *plan.always, *flags]
        self._output.parent.mkdir(exist_ok=True)
        with self._output.open("ab") as output:
            self._printed_before = output.tell()
            return subprocess.Popen(
                [*launcher(), sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                creationflags=NEW_GROUP,
            )

    def _last_error(self) -> str:
        """Return the last ``error:`` line of the run's last start, without that word; else its last line."""
        printed = self._output.read_bytes()[self._printed_before :].decode("utf-8", errors="replace")
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return (errors or lines or ["it printed nothing"])[-1]


class Trial:
    """A trial: runs with one seed each, one after the other, whose values go to the optimiser."""

    def __init__(self, record: TrialRecord, plan: RunPlan, optimiser: Optimiser, seed: int) -> None:
        self.number = record.number
        self.values = record.values
        self._plan = plan
        self._optimiser = optimiser
        self._runs = [
            StudyRun(plan, run_name(f"trial_{record.number:03d}", index), record.values, seed + index)
            for index in range(plan.tune.seeds)
        ]
        self._scores: list[float] = []
        self._judged = 0  # points that were reported

    def advance(self) -> bool:
        """Advance without waiting; return whether the trial has ended, which is stored then."""
        run = self._runs[len(self._scores)]
        state, points = run.advance(), run.points()
        if state == "failed":
            self._optimiser.end(self.number, "failed", why=run.why)
            return True
        if self._plan.tune.prunes and self._is_hopeless(points):
            self._optimiser.end(self.number, "pruned")  # before the run ends
            self.stop()
            return True
        if state == "running":
            return False
        if not points:
            why = f"no row of its metrics has {self._plan.tune.metric}"
            self._optimiser.end(self.number, "failed", why=why)
            return True
        self._scores.append(score(points, self._plan.tune))
        if len(self._scores) == len(self._runs):
            self._optimiser.end(self.number, "complete", score=fmean(self._scores))
            return True
        return False

    def request_stop(self) -> None:
        """Signal the trial's run to save and end, without waiting for it."""
        for run in self._runs:
            run.request_stop()

    def stop(self) -> None:
        """Signal the trial's run to save and end, and wait; a resumed study continues the trial."""
        for run in self._runs:
            run.stop()

    def _is_hopeless(self, points: Sequence[tuple[int, float]]) -> bool:
        """Report new points; return whether the pruner would end the trial at one of them.

        Each point is judged by itself, however late it is read, so that a resumed study decides the same.
        """
        for step, value in points[self._judged :]:
            if step >= self._plan.length > 0:
                return False
            self._judged += 1
            self._optimiser.report(self.number, nominal(step, self._plan.every), value)
            if self._optimiser.is_hopeless(self.number):
                return True
        return False


def fitting(values: Mapping[str, object], algorithm: str) -> dict[str, object]:
    """Return the values that affect a run. algorithm: the section's, unless the values choose another one."""
    chosen = str(values.get("algorithm", algorithm))
    return {path: value for path, value in values.items() if without_effect(path, chosen) is None}


def run_name(name: str, index: int) -> str:
    """Return the name of a trial's run: the trial's own name for index 0, then NAME_2, NAME_3 and so on."""
    return name if index == 0 else f"{name}_{index + 1}"


def nominal(step: int, every: int) -> int:
    """Return the nearest multiple of ``every``, at least one; the step itself if ``every`` is 0.

    Runs with other n_envs are evaluated at slightly different steps; by the multiple they can be compared.
    """
    return step if every <= 0 else max(1, round(step / every)) * every


def score(points: Sequence[tuple[int, float]], tune: TuneConfig) -> float:
    """Return a run's score by ``tune.value``: last value, best value, or mean over steps (trapezoidal)."""
    values = [value for _, value in points]
    if tune.value == "last":
        return values[-1]
    if tune.value == "best":
        return max(values) if tune.direction == "maximize" else min(values)
    steps = points[-1][0] - points[0][0]
    area = sum((b - a) * (x + y) / 2 for (a, x), (b, y) in pairwise(points))
    return area / steps if steps else values[-1]
