"""Profile of a training: where its time goes, by operators of torch and functions of Python."""

from __future__ import annotations

import cProfile
import io
import os
import pstats
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from algorithm.console.base import Console
from algorithm.errors import StorageError
from algorithm.runs.files import write_text
from algorithm.timing import Part

SECONDS = 3.0
_SKIPPED = 3  # steps with updates before the first table: what is done once belongs in no profile
_ROWS = 30
_CODE = Path(__file__).parents[2]


class NoProfile:
    """No measurement."""

    def step(self, updates: int) -> None:
        """Do nothing."""

    def finish(self, shares: str) -> None:
        """Do nothing."""


class TrainingProfile:
    """Two tables, each over some seconds of a training that makes updates.

    A profiler slows down what it measures. So each runs by itself and for a short time, and the shares of
    the parts come from the whole training.

    file:    destination
    console: is told where it is
    seconds: of each table
    """

    def __init__(
        self,
        file: Path,
        console: Console,
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._file, self._console, self._seconds, self._clock = file, console, seconds, clock
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it writes between the lines of the screen
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._operators, self._functions = profile(activities=activities), cProfile.Profile()
        self._ahead = [self._end_functions, self._end_operators, self._begin_operators]
        self._updates, self._skipped, self._until = -1, _SKIPPED, 0.0

    def step(self, updates: int) -> None:
        """Begin or end a measurement after a step, if that is due; ``updates``: of the run so far."""
        if not self._ahead:
            return
        if self._skipped:
            self._skipped -= self._updates not in (-1, updates)
            self._updates = updates
        elif self._clock() >= self._until:
            self._ahead.pop()()
            self._until = self._clock() + self._seconds

    def finish(self, shares: str) -> None:
        """End what runs and write the file; ``shares``: of the parts. A full disk is a warning."""
        tables = "Too few updates were made for more.\n"
        if self._begin_operators not in self._ahead:
            while self._ahead:
                self._ahead.pop()()
            tables = self._tables()
        try:
            write_text(self._file, f"Shares of the training's time\n{shares}\n\n{tables}")
        except StorageError as error:
            self._console.warn(error.line)
        else:
            self._console.message(f"where the time went: {self._file}")

    def _begin_operators(self) -> None:
        self._operators.start()

    def _end_operators(self) -> None:
        self._operators.stop()
        self._functions.enable()

    def _end_functions(self) -> None:
        self._functions.disable()

    def _tables(self) -> str:
        operators = self._operators.key_averages().table(
            sort_by="self_cpu_time_total", row_limit=_ROWS, max_name_column_width=50
        )
        stream = io.StringIO()
        pstats.Stats(self._functions, stream=stream).sort_stats("tottime").print_stats(_ROWS)
        functions = stream.getvalue().replace(f"{_CODE}/", "").strip()
        return (
            f"Operators of torch, over {self._seconds:g} s\n{operators}\n"
            f"Functions of Python, over the {self._seconds:g} s that followed\n{functions}\n"
        )


def shares(seconds: Mapping[Part, float]) -> str:
    """Return the share of each part that has one percent or more, the largest first."""
    total = sum(seconds.values()) or 1.0
    parts = sorted(seconds.items(), key=lambda item: -item[1])
    return " · ".join(f"{part} {value / total:.0%}" for part, value in parts if value >= 0.01 * total)
