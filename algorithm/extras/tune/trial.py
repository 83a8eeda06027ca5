"""Runs of a study, as processes of ``main.py``."""

from __future__ import annotations

import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from algorithm.config.extras_config import TuneConfig
from algorithm.config.yaml_io import inline
from algorithm.core.program import python_arguments
from algorithm.core.system.launch import launcher
from algorithm.core.system.processes import KILL, NEW_GROUP, ending, send_signal
from algorithm.extras.tune.space import without_effect
from algorithm.store.lock import holder_of
from algorithm.store.logs.rows import read_points
from algorithm.store.rundir import RunDir

OUTPUT = "output"
"""Folder in a study's, with the output of its runs."""

_KILLS = 2  # after which a run is not started again
_TERMINATED = 128 + signal.SIGTERM
_SAVE_S = 120.0  # for a run to save
_TICK_S = 0.2

RunEnd = Literal["done", "failed", "pruned", "stopped"]


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
        self._printed_before = 0  # bytes of the output of earlier starts
        self._size = -1  # of the file of metrics at the last reading
        self._points: list[tuple[int, float]] = []

    def play(
        self, stop: Callable[[], bool], hopeless: Callable[[Sequence[tuple[int, float]]], bool]
    ) -> RunEnd:
        """Start or resume the run, and wait for its end; one that was killed is resumed, at most twice.

        stop:     ends it once it returns true, so that it can be resumed
        hopeless: (points so far) -> whether it ends early
        """
        kills = 0
        while (holder := holder_of(self.run.lock)) and not holder.is_elsewhere and not stop():
            time.sleep(_TICK_S)  # it outlived a killed study
        while not self._is_over():
            process = self._start()
            try:
                while process.poll() is None:
                    if stop() or hopeless(self.points()):
                        _end(process)
                        return "stopped" if stop() else "pruned"
                    time.sleep(_TICK_S)
            finally:  # an error here, such as a full disk, lets the run save
                if process.poll() is None:
                    _end(process)
            code = process.returncode
            if code == 0:
                break
            if kills == _KILLS or not (code < 0 or code == _TERMINATED):
                self.why = f"{ending(code)}: {self._last_error()}"
                return "failed"
            kills += 1
        return "pruned" if hopeless(self.points()) else "done"

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


def _end(process: subprocess.Popen[bytes]) -> None:
    """Signal a process to save and end, and wait for it; kill it after two minutes."""
    send_signal(process.pid, signal.SIGTERM)
    try:
        process.wait(_SAVE_S)
    except subprocess.TimeoutExpired:
        send_signal(process.pid, KILL)
        process.wait()


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
