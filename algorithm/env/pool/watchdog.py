"""Ends the process when an environment that runs in it hangs, and says where it hangs."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

import numpy as np

from algorithm.env.pool.monitor_process import exit_now, monitor_process
from algorithm.env.pool.step_buffers import StepBuffers
from algorithm.errors import EnvError

CLOSE_TIMEOUT = 10.0
"""Seconds within which simulators are released, however they behave."""

_NOTICE = 0.5  # seconds before that, in which this thread can still say what is the matter
_SLACK = 5.0  # seconds between this thread's own alarm and the one for which it is too late
_SAVING = 60.0  # seconds at most for what is done before the end


class ActiveTime:
    """Seconds in which this process ran, for who looks at least every ``often`` seconds.

    A process that is stopped (Ctrl-Z, SIGSTOP, a laptop that is closed) looks late once: of that gap no more
    than twice ``often`` counts. The clock alone cannot tell, it goes on meanwhile.
    """

    def __init__(self, often: float) -> None:
        self.seconds = 0.0
        self.began = self._last = time.monotonic()
        self._longest = 2 * often

    def since(self, moment: float) -> float:
        """Of the seconds since ``moment`` (time.monotonic), so many at least."""
        now = time.monotonic()
        stopped = now - self.began - self.seconds
        return max(0.0, min(self.seconds, now - moment - stopped))

    def look(self) -> float:
        """The seconds until now."""
        now = time.monotonic()
        self.seconds += min(now - self._last, self._longest)
        self._last = now
        return self.seconds


class Watchdog:
    """Watches ``buffers.call_started`` from a thread of its own; a context while calls are made into the copies.

    timeout: seconds; -1 never barks.
    on_hang: told before the process ends, in another thread than the one that hangs; it gets a minute

    A call that never comes back cannot be stopped from within its process, so the process ends with exit code
    4 and the stacks of its threads. If the call holds the interpreter's lock, no thread can run: then the
    process beside this one (:mod:`algorithm.env.pool.monitor_process`) ends it. Time in which this process was stopped
    does not count.
    """

    def __init__(
        self, buffers: StepBuffers, name: str, timeout: float, on_hang: Callable[[EnvError], None]
    ) -> None:
        self._buffers, self._name, self._timeout, self._on_hang = buffers, name, timeout, on_hang
        self._stop = threading.Event()
        self._ending = threading.Lock()  # held while the process is being ended
        self._closing = 0.0  # time.monotonic() at which that began
        if timeout > 0:
            monitor_process()
            threading.Thread(target=self._watch, name="env watchdog", daemon=True).start()

    def __enter__(self) -> None:
        if self._timeout > 0:
            monitor_process().watch_call(self._timeout + _SLACK)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timeout > 0:
            monitor_process().watch_call(0.0)
            with self._ending:  # who comes back too late goes no further
                pass

    @contextmanager
    def closing(self) -> Iterator[None]:
        """The simulators are being closed: they get ten seconds. Afterwards nothing is watched."""
        if self._timeout <= 0:
            threading.Thread(target=self._watch, name="env watchdog", daemon=True).start()
        self._closing = time.monotonic()
        monitor_process().watch_call(CLOSE_TIMEOUT + _SLACK)
        try:
            yield
        finally:
            monitor_process().watch_call(0.0)
            self._stop.set()
            with self._ending:
                pass

    def _call(self) -> tuple[float, float]:
        """When the call that is going on began, 0 if there is none, and how long it may take."""
        if self._closing:
            return self._closing, CLOSE_TIMEOUT - _NOTICE
        return float(self._buffers.call_started.max()), self._timeout

    def _watch(self) -> None:
        often = min(1.0, (self._timeout if self._timeout > 0 else CLOSE_TIMEOUT) / 4)
        ran = ActiveTime(often)
        call, before = 0.0, 0.0
        while not self._stop.wait(often):
            monitor_process().beat()
            now, (began, limit) = ran.look(), self._call()
            if began != call:
                call, before = began, now
            elif call and now - before > limit:
                with self._ending:
                    if self._call()[0] == call and not self._stop.is_set():
                        self._bark(limit)

    def _bark(self, limit: float) -> None:
        place, call = "", "close"
        if not self._closing:
            place, call = f"copy {int(np.argmax(self._buffers.call_started))}, ", "step or reset"
        error = EnvError(
            f"{self._name} hangs in {call}",
            where=f"{place}in this process; the stacks are above",
            why=f"no answer for {limit:g} s",
            fix="set base_config.workers: a worker that hangs is started anew; or raise env_timeout",
        )
        faulthandler.dump_traceback(file=2, all_threads=True)
        last = threading.Thread(target=self._on_hang, args=(error,), name="before the end", daemon=True)
        last.start()
        ran = ActiveTime(0.5)
        while last.is_alive() and ran.look() < _SAVING:
            monitor_process().beat()
            last.join(0.5)
        show_cursor = "\x1b[?25h" if sys.__stderr__ and sys.__stderr__.isatty() else ""
        with suppress(OSError):  # standard error is full, or nobody reads it
            os.write(2, f"{show_cursor}error: {error}\n".encode())
        exit_now(EnvError.exit_code)
