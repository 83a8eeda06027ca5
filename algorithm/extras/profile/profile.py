"""Profile of a training's time, by operators of torch and by functions of Python."""

from __future__ import annotations

import cProfile
import io
import os
import pstats
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from typing_extensions import override

from algorithm.core.console import Console
from algorithm.core.errors import StorageError
from algorithm.run.trainer import NoProfile
from algorithm.store.files import write_text

SECONDS = 3.0
_SKIPPED = 3  # steps with updates before the first table, in which one-time work is done
_ROWS = 30
_CODE = Path(__file__).parents[3]


class TrainingProfile(NoProfile):
    """Profiler that writes two tables, each over some seconds of a training that makes updates.

    A profiler slows down what it measures. So the two run one after the other, each for a short time; the
    shares of the training's stages are measured over the whole training.

    file:    destination
    console: shows the path of the file
    seconds: of each table
    clock:   returns seconds
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
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # no lines of torch on the screen
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._operators, self._functions = profile(activities=activities), cProfile.Profile()
        self._ahead = [
            ("Functions of Python", self._functions.enable, self._functions.disable),
            ("Operators of torch", self._operators.start, self._operators.stop),
        ]
        self._updates, self._skipped = -1, _SKIPPED
        self._stop: Callable[[], object] | None = None  # ends the current table
        self._name, self._since = "", 0.0
        self._took: dict[str, float] = {}

    @override
    def step(self, updates: int) -> None:
        if self._skipped:
            self._skipped -= self._updates not in (-1, updates)
            self._updates = updates
        elif self._stop is None:
            self._begin()
        elif self._clock() - self._since >= self._seconds:
            self.interrupt()
            self._begin()

    @override
    def interrupt(self) -> None:
        if self._stop is not None:
            self._stop()
            self._took[self._name] = self._clock() - self._since
            self._stop = None

    @override
    def finish(self, shares: str) -> None:
        self.interrupt()
        try:
            write_text(self._file, f"Shares of the training's time\n{shares}\n\n{self._tables()}")
        except StorageError as error:
            self._console.warn(error.line)
        else:
            self._console.message(f"where the time went: {self._file}")

    def _begin(self) -> None:
        """Start the next table, if there is one."""
        if self._ahead:
            self._name, start, self._stop = self._ahead.pop()
            start()
            self._since = self._clock()

    def _tables(self) -> str:
        """Return all tables as text."""
        tables = {
            "Operators of torch": self._table_of_operators,
            "Functions of Python": self._table_of_functions,
        }
        texts = [f"{name}, over {took:.1f} s\n{tables[name]()}\n" for name, took in self._took.items()]
        return "\n".join(texts) or "Too few updates were made for more.\n"

    def _table_of_operators(self) -> str:
        table: str = self._operators.key_averages().table(
            sort_by="self_cpu_time_total", row_limit=_ROWS, max_name_column_width=50
        )
        return table

    def _table_of_functions(self) -> str:
        text = io.StringIO()
        pstats.Stats(self._functions, stream=text).sort_stats("tottime").print_stats(_ROWS)
        return text.getvalue().replace(f"{_CODE}/", "").strip()
