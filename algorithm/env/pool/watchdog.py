"""Time limits of calls that hang: a close is interrupted; at any other call a thread ends this process."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import TracebackType

import numpy as np

from algorithm.core.data import Double
from algorithm.core.errors import EnvError
from algorithm.core.system.alarm import interrupting
from algorithm.core.system.processes import exit_now

CLOSE_TIMEOUT = 10.0
"""Seconds within which simulators are released."""

_SAVING = 60.0  # seconds at most for `on_hang`


class ActiveTime:
    """Seconds in which this process ran, if it is updated at least every ``interval`` seconds.

    A process that is stopped (Ctrl-Z, SIGSTOP, a suspended laptop) updates late once. At most twice the
    interval of that gap counts; the clock alone would count all of it.
    """

    def __init__(self, interval: float) -> None:
        self.seconds = 0.0
        self.began = self._last = time.monotonic()
        self._longest = 2 * interval

    def since(self, moment: float) -> float:
        """Return at least how many of the seconds since ``moment`` (time.monotonic) were active."""
        now = time.monotonic()
        stopped = now - self.began - self.seconds
        return max(0.0, min(self.seconds, now - moment - stopped))

    def update(self) -> float:
        """Update and return the seconds until now."""
        now = time.monotonic()
        self.seconds += min(now - self._last, self._longest)
        self._last = now
        return self.seconds


class Watchdog:
    """A thread that watches ``call_started``; a context manager around calls into sub-environments.

    call_started: time.monotonic() of the open call of each sub-environment, 0 without one, [N]
    timeout: seconds; -1 disables it
    fix:     advice beside a longer time-out
    on_hang: called before the process ends, in another thread than the one that hangs; it gets a minute

    A call that never returns cannot be stopped from within its process, so the process prints its stacks and
    exits with code 4. Time in which the process was stopped does not count. A call that holds the GIL stops
    this thread as well, and is not detected: only a worker process can then be replaced.
    """

    def __init__(
        self,
        call_started: Double,
        name: str,
        timeout: float,
        on_hang: Callable[[EnvError], None],
        *,
        fix: str = "set base_config.workers: a worker that hangs is replaced; or ",
    ) -> None:
        self._call_started, self._name, self._timeout, self._on_hang = call_started, name, timeout, on_hang
        self._fix = fix
        self._stop = threading.Event()
        self._ending = threading.Lock()  # held while the process ends
        self._closing = 0.0  # time.monotonic() at the start of closing
        if timeout > 0:
            threading.Thread(target=self._watch, name="env watchdog", daemon=True).start()

    def __enter__(self) -> None:
        """Do nothing: ``call_started`` has the start of each call."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._ending:  # a call that returns too late waits here for the end
            pass

    @contextmanager
    def call(self, i: int) -> Iterator[None]:
        """Note the start and end of a call into sub-environment i."""
        self._call_started[i] = time.monotonic()
        try:
            yield
        finally:
            self._call_started[i] = 0.0
            with self._ending:
                pass

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Watch the closing of the simulators, and stop watching. Raises EnvError as :func:`closing_in_time`.

        A close that cannot be interrupted ends the process after twice that time.
        """
        if self._timeout <= 0:
            threading.Thread(target=self._watch, name="env watchdog", daemon=True).start()
        self._closing = time.monotonic()
        try:
            with closing_in_time(self._name):
                yield
        finally:
            self._stop.set()
            with self._ending:
                pass

    def _call(self) -> tuple[float, float]:
        """Return the start of the current call, 0 without one, and its time limit."""
        if self._closing:
            return self._closing, 2 * CLOSE_TIMEOUT
        return float(self._call_started.max()), self._timeout

    def _watch(self) -> None:
        """End the process if the current call takes longer than its limit; runs in a thread."""
        interval = min(1.0, (self._timeout if self._timeout > 0 else CLOSE_TIMEOUT) / 4)
        active = ActiveTime(interval)
        call, before = 0.0, 0.0
        while not self._stop.wait(interval):
            now, (began, limit) = active.update(), self._call()
            if began != call:
                call, before = began, now
            elif call and now - before > limit:
                with self._ending:
                    if self._call()[0] == call and not self._stop.is_set():
                        self._end_process(limit)

    def _end_process(self, limit: float) -> None:
        """Print the stacks of all threads, save the run, and end the process with the error."""
        error = self._error(limit)
        faulthandler.dump_traceback(file=2, all_threads=True)
        last = threading.Thread(target=self._on_hang, args=(error,), name="before the end", daemon=True)
        last.start()
        active = ActiveTime(0.5)
        while last.is_alive() and active.update() < _SAVING:
            last.join(0.5)
        show_cursor = "\x1b[?25h" if sys.__stderr__ and sys.__stderr__.isatty() else ""
        with suppress(OSError):  # standard error is full or closed
            os.write(2, f"{show_cursor}error: {error}\n".encode())
        exit_now(EnvError.exit_code)

    def _error(self, limit: float) -> EnvError:
        """Return the error for the current call, which has not returned within ``limit`` seconds."""
        place, call, fix = "", "close", "make its close() return"
        if not self._closing:
            place, call = f"environment {int(np.argmax(self._call_started))}, ", "step or reset"
            fix = "raise base_config.env_timeout"
        return EnvError(
            f"{self._name} hangs in {call}",
            where=f"{place}in this process; the stacks are above",
            why=f"no answer for {limit:g} s",
            fix=f"{self._fix}{fix}",
        )


def closing_in_time(name: str) -> AbstractContextManager[None]:
    """Interrupt a close after ten seconds; raises EnvError then. name: of the environment."""
    return interrupting(CLOSE_TIMEOUT, hanging_close(name))


def hanging_close(name: str) -> EnvError:
    """Return the error for an environment whose ``close`` does not return."""
    return EnvError(
        f"{name} hangs in close",
        why=f"it did not return within {CLOSE_TIMEOUT:g} s",
        fix="fix its close(): processes and memory may remain",
    )
