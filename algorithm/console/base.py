"""What a person sees while a run goes on: a live panel, plain lines, or next to nothing.

``open_console`` chooses; all of it goes to ``train.log`` as well. Imports neither torch nor numpy.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO, cast

from algorithm.errors import StorageError
from algorithm.runs.logs.runlog import RunLog
from algorithm.streams import Lasting

Rows = Sequence[tuple[str, str]]
Sections = Sequence[tuple[str, Rows]]

LINE_INTERVAL_S = 10.0


@dataclass(frozen=True)
class Evaluation:
    """Outcome of one evaluation: environment step, mean return, half width of its 95 % interval."""

    step: int
    mean: float
    ci95: float
    episodes: int


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands. Limits that do not exist, and numbers not known yet, are None or NaN.

    step, iteration, updates, episodes: counted since the run began; max_step and max_iter bound two of them.
    seconds: wall time so far; eta_s: what is left of it.
    returns: of the last 20 training episodes at most, the latest last.
    env_restarts: environments that failed and were started anew.
    metrics: latest values by their names in ``metrics.METRICS``.
    rows: more lines for the panel, name and text.
    """

    step: int
    max_step: int | None
    iteration: int
    max_iter: int | None
    updates: int
    episodes: int
    seconds: float
    eta_s: float | None
    env_steps_per_s: float
    updates_per_s: float
    returns: Sequence[float] = ()
    last_eval: Evaluation | None = None
    best_eval: Evaluation | None = None
    env_restarts: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    rows: Rows = ()

    @property
    def fraction(self) -> float | None:
        """Part of the run that is done, by the limit that comes first; None for a run without limits."""
        parts = [
            done / limit
            for done, limit in ((self.step, self.max_step), (self.iteration, self.max_iter))
            if limit
        ]
        return min(max(parts), 1.0) if parts else None

    @property
    def return_mean(self) -> float | None:
        """Mean of ``returns``; None before the first episode ended."""
        return sum(self.returns) / len(self.returns) if self.returns else None


class Console(ABC):
    """A context manager; leaving it, on an exception too, restores the terminal and repeats the warnings."""

    def __enter__(self) -> Console:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def start(self, sections: Sections) -> None:
        """Show the start-up screen: titled sections of (name, value)."""

    @abstractmethod
    def due(self) -> bool:
        """Whether ``progress`` would show something now; cheap enough to ask at every step."""

    @abstractmethod
    def progress(self, progress: Progress) -> None:
        """Show where the run stands, if it is due."""

    @abstractmethod
    def evaluation(self, evaluation: Evaluation, *, best: bool) -> None:
        """Show an evaluation; ``best``: it beats all before it."""

    @abstractmethod
    def message(self, text: str) -> None:
        """Show one line of information."""

    @abstractmethod
    def command(self, purpose: str, command: str) -> None:
        """Show a command on one line, so that it can be copied; ``purpose``: what it is for."""

    @abstractmethod
    def warn(self, text: str) -> None:
        """Show a warning now, and once more at the end."""

    @abstractmethod
    def finish(self, summary: Rows, commands: Rows) -> None:
        """Show the result and the commands one wants next: (purpose, command)."""

    @abstractmethod
    def close(self) -> None:
        """Give the terminal back; warnings not repeated yet are repeated. May be called twice."""


class Warnings:
    """Collects warnings for their repetition at the end; equal ones are counted."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._buried = False  # something was shown since

    def add(self, text: str) -> None:
        """Remember a warning."""
        self._counts[text] = self._counts.get(text, 0) + 1

    def bury(self) -> None:
        """Something else is shown, so that who looks at the end no longer sees them."""
        self._buried = bool(self._counts)

    def drain(self) -> list[str]:
        """All of them in order of their first appearance, then forget them; none that still stand there."""
        counts, self._counts = (self._counts if self._buried else {}), {}
        return [text if count == 1 else f"{text} ({count} times)" for text, count in counts.items()]


class LineConsole(Console):
    """One ``key=value`` line every ten seconds: for pipes and files.

    emit:  shows a line.
    alert: shows a warning's line.
    """

    def __init__(
        self,
        emit: Callable[[str], None],
        alert: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._emit = emit
        self._alert = alert
        self._clock = clock
        self._next = -float("inf")
        self._step = 0  # of the last line
        self._warnings = Warnings()

    def start(self, sections: Sections) -> None:
        """One line a row, below its section's title."""
        width = max((len(name) for _, rows in sections for name, _ in rows), default=0)
        self._warnings.bury()
        for title, rows in sections:
            self._emit(title)
            self._table(rows, width)

    def due(self) -> bool:
        """Every ten seconds."""
        return self._clock() >= self._next

    def progress(self, progress: Progress) -> None:
        """One ``progress_line``, if it is due and a step has been taken since the last one."""
        if self.due() and progress.step != self._step:
            self._next, self._step = self._clock() + LINE_INTERVAL_S, progress.step
            self._warnings.bury()
            self._emit(progress_line(progress))

    def evaluation(self, evaluation: Evaluation, *, best: bool) -> None:
        """One ``evaluation_line``, at once."""
        self._warnings.bury()
        self._emit(evaluation_line(evaluation, best=best))

    def message(self, text: str) -> None:
        """The text as it is."""
        self._warnings.bury()
        self._emit(text)

    def command(self, purpose: str, command: str) -> None:
        """Both on one line."""
        self.message(f"{purpose}: {command}")

    def warn(self, text: str) -> None:
        """The text, through ``alert``."""
        self._warnings.add(text)
        self._alert(text)

    def finish(self, summary: Rows, commands: Rows) -> None:
        """Warnings again, then the result and the commands, one line a row."""
        self._repeat_warnings()
        width = max((len(name) for name, _ in (*summary, *commands)), default=0)
        self._emit("result")
        self._table(summary, width)
        if commands:
            self._emit("next")
            self._table(commands, width)

    def close(self) -> None:
        """Repeat the warnings."""
        self._repeat_warnings()

    def _table(self, rows: Rows, width: int) -> None:
        for name, value in rows:
            self._emit(f"  {name:<{width}}  {value}")

    def _repeat_warnings(self) -> None:
        for text in self._warnings.drain():
            self._alert(f"again: {text}")


class QuietConsole(LineConsole):
    """Warnings and the end, nothing else."""

    def start(self, sections: Sections) -> None:
        """Nothing."""

    def due(self) -> bool:
        """Never."""
        return False

    def progress(self, progress: Progress) -> None:
        """Nothing."""

    def evaluation(self, evaluation: Evaluation, *, best: bool) -> None:
        """Nothing."""

    def message(self, text: str) -> None:
        """Nothing."""


def open_console(
    *, quiet: bool = False, logger: logging.Logger | None = None, stream: TextIO | None = None
) -> Console:
    """The console that suits ``stream`` (standard output if None), and the log if there is one."""
    stream = cast(TextIO, Lasting(stream or sys.stdout))
    screen: Console
    if quiet:
        screen = QuietConsole(*_printers(stream))
    elif stream.isatty() and os.environ.get("TERM") != "dumb":
        from algorithm.console.live import LiveConsole

        screen = LiveConsole(stream)
    else:
        screen = LineConsole(*_printers(stream))
    return screen if logger is None else logged(screen, logger)


def logged(screen: Console, logger: logging.Logger) -> Console:
    """``screen`` and the log; once the log cannot be written, the screen says so."""
    from algorithm.console.tee import Tee

    for run_log in _run_logs():
        run_log.tell = screen.warn
    return Tee(screen, LineConsole(logger.info, logger.warning))


def setup_logging(path: Path, *, debug: bool) -> logging.Logger:
    """Send the program's log, Python's warnings and those of libraries to the file ``path``.

    debug: with the program's debug lines. Nothing is written to the screen. Called again, as for the next of
    several runs, it closes the file before. Returns the program's logger. Raises StorageError.
    """
    try:
        handler = RunLog(path)
    except OSError as error:
        raise StorageError.of(error, what="the log cannot be written", where=path) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    close_logging()
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
    logger = logging.getLogger("algorithm")
    logger.setLevel(logging.DEBUG if debug else logging.INFO)
    return logger


def close_logging() -> None:
    """Undo ``setup_logging``: close the file, and let warnings go to the screen again."""
    for run_log in _run_logs():
        logging.getLogger().removeHandler(run_log)
        run_log.close()
    logging.captureWarnings(False)


def _run_logs() -> list[RunLog]:
    """Told apart from the handlers of others by their type."""
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, RunLog)]


def progress_line(progress: Progress) -> str:
    """One line of ``key=value``; what is not known is left out, metrics keep their names."""
    best, last = progress.best_eval, progress.last_eval
    pairs: dict[str, float | None] = {
        "step": progress.step,
        "max_step": progress.max_step,
        "iteration": progress.iteration,
        "max_iter": progress.max_iter,
        "updates": progress.updates,
        "episodes": progress.episodes,
        "seconds": round(progress.seconds, 1),
        "eta_s": None if progress.eta_s is None else round(progress.eta_s),
        "env_steps_per_s": progress.env_steps_per_s,
        "updates_per_s": progress.updates_per_s,
        "return": progress.return_mean,
        "eval": last.mean if last else None,
        "eval_best": best.mean if best else None,
        **progress.metrics,
    }
    return _key_values(pairs)


def evaluation_line(evaluation: Evaluation, *, best: bool) -> str:
    """One line of ``key=value`` that begins with the word eval."""
    pairs: dict[str, float | None] = {
        "step": evaluation.step,
        "return_mean": evaluation.mean,
        "return_ci95": evaluation.ci95,
        "episodes": evaluation.episodes,
        "best": int(best),
    }
    return f"eval {_key_values(pairs)}"


def _key_values(pairs: Mapping[str, float | None]) -> str:
    known = {key: value for key, value in pairs.items() if value is not None and value == value}
    return " ".join(f"{k}={v}" if isinstance(v, int) else f"{k}={v:.6g}" for k, v in known.items())


def _printers(stream: TextIO) -> tuple[Callable[[str], None], Callable[[str], None]]:
    def emit(line: str) -> None:
        print(line, file=stream, flush=True)

    return emit, lambda line: emit(f"warning: {line}")
