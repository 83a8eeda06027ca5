"""Interruption of code that takes too long."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN_S = 0.25  # between interruptions: code may swallow one, and what comes next may hang as well


class _OverdueError(BaseException):
    """Interruption of code that takes too long, which no ``except Exception`` catches."""


@contextmanager
def interrupting(seconds: float, error: Exception) -> Iterator[None]:
    """Interrupt the block if it takes longer than so many seconds, and raise ``error`` then.

    Works in the main thread only, on systems with timers. Compiled code runs on until it returns.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    late, at_work = False, True

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal late
        if at_work:
            late = True
            raise _OverdueError

    handler = signal.signal(signal.SIGALRM, interrupt)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    except BaseException:
        if not late:
            raise
    finally:
        at_work = False
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)
    if late:
        raise error
