"""Processes of ``main.py``: begun in a moment, struck, waited for."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

LIMIT = 120.0  # seconds until something is wrong

# A server that has imported everything makes a new process in a moment, and is itself in no test's state.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.lib.preloaded"])


def comes_true(condition: Callable[[], object], seconds: float = 5.0) -> bool:
    """Return whether a condition holds within so many seconds; it is looked at twenty times a second."""
    deadline = time.monotonic() + seconds
    while not (held := bool(condition())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return held


class Program:
    """``python main.py ./task flags…`` in ``folder``, in a process and a session of its own.

    output: a file or pipe in the folder that gets all that is printed; "": its output is closed
    """

    def __init__(self, folder: Path, *flags: str, output: str = "said.txt") -> None:
        self.folder, self.output = folder, folder / output
        self._process = _CONTEXT.Process(
            target=_main, args=(str(folder), ["./task", "--device=cpu", *flags], output)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def said(self) -> str:
        """All that was printed into the same file."""
        return self.output.read_text() if self.output.is_file() else ""

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for it. Raises AssertionError if the process ends before, or nothing comes of it."""
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert self.is_alive and time.monotonic() < deadline, self.said
            time.sleep(0.005)

    def send(self, number: signal.Signals, *, group: bool = False) -> None:
        (os.killpg if group else os.kill)(self.pid, number)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)

    def end(self, limit: float = LIMIT) -> int | None:
        """Wait for its exit code; None if it does not end in time."""
        self._process.join(limit)
        return self._process.exitcode

    def kill(self) -> None:
        if self.is_alive:
            self._process.kill()
            self._process.join()


def _main(folder: str, arguments: list[str], output: str) -> None:
    os.setsid()  # as a terminal does it
    os.chdir(folder)
    if output:
        opened = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(opened, stream)
        os.close(opened)
        # The server's own streams belong to other files than these.
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", 1, closefd=False) for stream in (1, 2))
    else:
        os.closerange(1, 3)
    sys.argv = ["main.py", *arguments]
    sys.path.insert(0, folder)  # prepare_process takes it off again

    from algorithm.app import summaries
    from algorithm.app.command import exit_process, main, prepare_process

    for takes_long in ("plot_curve", "write_report"):
        setattr(summaries, takes_long, lambda *_, **__: None)
    prepare_process()
    exit_process(main())
