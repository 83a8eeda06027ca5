"""Ends the process when an environment that runs in it hangs, and says where it hangs."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from algorithm.env.board import Board
from algorithm.errors import EnvError

CLOSE_TIMEOUT = 10.0
"""Seconds within which simulators are released, however they behave."""

_NOTICE = 0.5  # seconds before that, in which this thread can still say what is the matter
_SLACK = 5.0  # seconds between this thread's own alarm and the one for which it is too late


class Watchdog:
    """Watches ``board.began`` from a thread of its own.

    timeout: seconds; -1 never barks.

    A call that never comes back cannot be stopped from within its process, so the process ends with exit code
    4 and the stacks of its threads. If the call holds the interpreter's lock, this thread cannot run either:
    then faulthandler, which needs no lock, prints the stacks and ends the process with exit code 1.
    """

    def __init__(self, board: Board, name: str, timeout: float) -> None:
        self._board, self._name, self._timeout = board, name, timeout
        self._stop = threading.Event()
        if timeout > 0:
            self._arm()  # before the thread has had a chance to run
            self._thread = threading.Thread(target=self._watch, name="env watchdog", daemon=True)
            self._thread.start()

    @contextmanager
    def closing(self) -> Iterator[None]:
        """The simulators are being closed: they get ten seconds. Afterwards nothing is watched."""
        self._stop.set()
        if self._timeout > 0:
            self._thread.join()
        alarm = threading.Timer(CLOSE_TIMEOUT - _NOTICE, self._bark, ("close", "", CLOSE_TIMEOUT - _NOTICE))
        alarm.daemon = True
        alarm.start()
        faulthandler.dump_traceback_later(CLOSE_TIMEOUT, exit=True, file=2)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            alarm.cancel()

    def _arm(self) -> None:
        faulthandler.dump_traceback_later(self._timeout + _SLACK, exit=True, file=2)

    def _watch(self) -> None:
        while not self._stop.wait(min(1.0, self._timeout / 4)):
            self._arm()
            began = self._board.began
            copy = int(np.argmax(began))
            if 0 < began[copy] < time.monotonic() - self._timeout:
                self._bark("step or reset", f"copy {copy}, ", self._timeout)
        faulthandler.cancel_dump_traceback_later()

    def _bark(self, call: str, where: str, timeout: float) -> None:
        error = EnvError(
            f"{self._name} hangs in {call}",
            where=f"{where}in this process; the stacks are above",
            why=f"no answer for {timeout:g} s",
            fix="set base_config.workers: a worker that hangs is started anew; or raise env_timeout",
        )
        faulthandler.dump_traceback(file=2, all_threads=True)
        show_cursor = "\x1b[?25h" if sys.__stderr__ and sys.__stderr__.isatty() else ""
        os.write(2, f"{show_cursor}error: {error}\n".encode())
        os._exit(EnvError.exit_code)
