"""Console and log of a process: choice, set-up and end."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import TextIO, cast

from algorithm.app.console.base import LineConsole, Tee
from algorithm.core.console import Console
from algorithm.core.errors import StorageError
from algorithm.core.streams import Lasting
from algorithm.runs.logs.runlog import RunLog


def open_console(
    *, quiet: bool = False, logger: logging.Logger | None = None, stream: TextIO | None = None
) -> Console:
    """Return the console for ``stream`` (standard output if None), joined with ``logger`` if there is one.

    A live panel on a terminal and in a notebook, lines elsewhere; ``quiet``: warnings and the end only.
    """
    stream = stream or sys.stdout
    in_notebook = type(stream).__module__.startswith("ipykernel.")
    stream = cast(TextIO, Lasting(stream))
    screen: Console
    if not quiet and (in_notebook or (stream.isatty() and os.environ.get("TERM") != "dumb")):
        from algorithm.app.console.live import LiveConsole  # rich takes a tenth of a second

        screen = LiveConsole(stream)
    else:
        emit = partial(print, file=stream, flush=True)
        screen = LineConsole(emit, lambda line: emit(f"warning: {line}"), quiet=quiet)
    return Tee(screen) if logger is None else logged(screen, logger)


def logged(screen: Console, logger: logging.Logger) -> Console:
    """Return ``screen`` joined with the log; once the log cannot be written, the screen warns."""
    for run_log in _run_logs():
        run_log.warn = screen.warn
    return Tee(screen, LineConsole(logger.info, logger.warning))


def setup_logging(path: Path, *, debug: bool) -> logging.Logger:
    """Send the program's log, Python's warnings and the logs of libraries to the file ``path``.

    debug: with the program's debug lines. Nothing goes to the screen. A second call, for the next of several
    runs, closes the previous file. Returns the program's logger. Raises StorageError.
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
    """Return our own handlers: libraries may have added others."""
    return [handler for handler in logging.getLogger().handlers if isinstance(handler, RunLog)]
