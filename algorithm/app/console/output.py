"""Console and log of a process: choice, set-up and end; the log on a disk that may become full."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TextIO, cast

from typing_extensions import override

from algorithm.app.console.base import LineConsole, Tee
from algorithm.core.console import Console
from algorithm.core.errors import StorageError, visible
from algorithm.core.system.display import in_notebook
from algorithm.core.system.output import SafeOutput
from algorithm.store.files import GrowingFile


def open_console(
    *, quiet: bool = False, logger: logging.Logger | None = None, output: TextIO | None = None
) -> Console:
    """Return the console for ``output`` (standard output if None), which also logs to ``logger``, if any.

    It is a panel on a terminal and in a notebook, and lines elsewhere. quiet: only warnings and the result.
    """
    screen = _screen(cast(TextIO, SafeOutput(output or sys.stdout)), quiet=quiet)
    return Tee(screen) if logger is None else logged(screen, logger)


def _screen(output: TextIO, *, quiet: bool) -> Console:
    """Return a panel or lines on ``output``; see :func:`open_console`."""
    if not quiet and in_notebook():
        from algorithm.app.console.notebook import NotebookConsole

        return NotebookConsole()
    if not quiet and output.isatty() and os.environ.get("TERM") != "dumb":
        from algorithm.app.console.live import LiveConsole  # rich takes a tenth of a second

        return LiveConsole(output)
    emit = partial(print, file=output, flush=True)
    return LineConsole(emit, lambda line: emit(f"warning: {line}"), quiet=quiet)


def logged(screen: Console, logger: logging.Logger) -> Console:
    """Return a console for screen and log; if the log cannot be written, the screen shows a warning."""
    for run_log in _run_logs():
        run_log.warn = screen.warn
    return Tee(screen, LineConsole(logger.info, logger.warning))


def setup_logging(path: Path, *, debug: bool) -> logging.Logger:
    """Send the program's log, Python's warnings and the logs of libraries to the file ``path``.

    debug: include the program's debug lines. Nothing goes to the screen. A second call, for the next of
    several runs, closes the previous file. Return the program's logger. Raises StorageError.
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
    """Close the file of ``setup_logging``; warnings go to the screen again."""
    for run_log in _run_logs():
        logging.getLogger().removeHandler(run_log)
        run_log.close()
    logging.captureWarnings(False)


def _run_logs() -> list[RunLog]:
    """Return the handlers of this thread's run: libraries have others, and other threads other runs."""
    return [run_log for run_log in _all_run_logs() if run_log.thread == threading.get_ident()]


def _all_run_logs() -> list[RunLog]:
    """Return the handlers of all runs in this process."""
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, RunLog)]


class RunLog(logging.Handler):
    """A handler that appends whole lines to a file, and counts the lines that could not be written.

    warn: called once, when the first line is left out
    Raises OSError if the file cannot be written to begin with.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = GrowingFile(path)
        self._file.append(b"\n" if path.exists() else b"")  # a kill may have torn the last line
        self._left_out = 0
        self.thread = threading.get_ident()  # of the run
        self.warn: Callable[[str], None] = _to_stderr

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record belongs to this run, and not to a thread that trains another one."""
        return all(other is self or other.thread != record.thread for other in _all_run_logs())

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Write one record. A record that cannot be formatted is treated as logging does."""
        try:
            text = self.format(record)
        except Exception:  # whatever a library's own arguments may do; its traceback goes to the screen
            self.handleError(record)
            return
        gap = f"(lines that could not be written here: {self._left_out})\n" if self._left_out else ""
        try:
            self._file.append(f"{gap}{visible(text)}\n".encode())
        except OSError as error:
            self._left_out += 1
            if self._left_out == 1:  # counted before: a warning may be logged as well
                why = StorageError.of(error, what="the log cannot be written", where=self._file.path)
                self.warn(f"{why.line} · training continues")
        else:
            self._left_out = 0


def _to_stderr(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)
