"""Signals that end a run: after the first it saves and ends, after the second it ends at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from algorithm.core.system.processes import HUNG_UP, STOP_SIGNALS, exit_now


class StoppedError(Exception):
    """A signal that came before there was anything to save."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(
            f"{number.name}: stopped while the environments were being made; nothing was started"
        )
        self.exit_code = 128 + number


class StopRequest:
    """A context in which signals set a flag instead of raising. Outside of the main thread it catches none.

    The handler prints nothing: it may interrupt a print, which would raise. SIGHUP never ends a run at once,
    since a closed terminal sends it more than once; if it was ignored (``nohup``) it stays so. Processes
    that an environment forks inherit the handler. SIGTERM ends them, and signals that a terminal sends to
    all processes have no effect on them.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._former: dict[int, object] = {}
        self.signal: signal.Signals | None = None
        self._received = False
        self._why = ""

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is not threading.main_thread():
            return self
        ignored = HUNG_UP is not None and signal.getsignal(HUNG_UP) is signal.SIG_IGN
        handled = [number for number in STOP_SIGNALS if not (ignored and number == HUNG_UP)]
        self._former = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return self.signal is not None or bool(self._why)

    @property
    def exit_code(self) -> int:
        """0, or 128 plus the signal's number."""
        return 0 if self.signal is None else 128 + self.signal

    @property
    def text(self) -> str:
        """Line to print after the first signal."""
        return self._why or f"{self.reason}: saving and stopping; repeat to stop at once"

    @property
    def reason(self) -> str:
        """Reason for the end, or the name of the signal."""
        return self._why or (self.signal.name if self.signal else "")

    def set(self, why: str, *, interrupted: bool = False) -> None:
        """Request the end of the run, without an error. interrupted: exit with the code of SIGINT."""
        self._why = why
        if interrupted:
            self.signal = self.signal or signal.SIGINT

    @contextmanager
    def passed_on(self) -> Iterator[None]:
        """Handle a signal of the block again after it, when the program's own handlers are back.

        Without a handler KeyboardInterrupt is raised for SIGINT, and SystemExit for others.
        """
        try:
            yield
        except StoppedError:
            self._pass_on()
            raise
        self._pass_on()

    def _pass_on(self) -> None:
        """Give the signal to the program's own handler, or raise SystemExit."""
        if self.signal is None or not self._received:
            return
        if callable(signal.getsignal(self.signal)):
            signal.raise_signal(self.signal)
        else:
            raise SystemExit(self.exit_code)

    def check_start(self) -> None:
        """Raise StoppedError after a signal."""
        if self.signal is not None:
            raise StoppedError(self.signal)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Set the flag at a first signal, and end the process at a second one."""
        if os.getpid() != self._process:
            if number == signal.SIGTERM:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        if self.signal is not None:
            if number == HUNG_UP:
                return
            exit_now(128 + number)
        self.signal, self._received = signal.Signals(number), True
