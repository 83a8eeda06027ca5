"""An actor's waits for its learner: a clock that tests can replace, growing pauses, lines that stay few."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Protocol

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
QUIET_S = 60.0
LOOK_S = 0.2
"""Seconds between two checks of a waiting thread whether the user wants to end."""

ShowLine = Callable[[str], None]
"""Output of one line for a person; called from any thread."""


class Clock(Protocol):
    """Source of time."""

    def now(self) -> float:
        """Return the seconds since some moment; never decreases."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for ``event``, at most so long. Return whether it is set."""
        ...


class RealClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return the seconds of a monotonic clock."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait at most ``seconds`` for ``event``; return whether it is set."""
        return event.wait(seconds)


class Backoff:
    """Pauses between tries: 0.1 s, doubled up to 5 s, each shortened at random by up to a half.

    Without that, all actors of a learner that comes back would call in the same moments.

    draw: random numbers in [0, 1)
    """

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._draw, self._next = draw, FIRST_PAUSE_S

    def pause(self) -> float:
        """Return the seconds to wait before the next try."""
        pause, self._next = self._next, min(2.0 * self._next, LONGEST_PAUSE_S)
        return pause * (1.0 - 0.5 * self._draw())

    def reset(self) -> None:
        """Start again with the shortest pause."""
        self._next = FIRST_PAUSE_S


class RateLimitedLog:
    """Log that shows one line of a kind per minute, with the number of those left out."""

    def __init__(self, show: ShowLine, clock: Clock) -> None:
        self._show, self._clock, self._lock = show, clock, threading.Lock()
        self._shown_at: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def say(self, kind: str, text: str) -> bool:
        """Show the line if one of its kind is due; return whether it was shown."""
        with self._lock:
            now, suppressed = self._clock.now(), self._suppressed.get(kind, 0)
            if kind in self._shown_at and now - self._shown_at[kind] < QUIET_S:
                self._suppressed[kind] = suppressed + 1
                return False
            self._shown_at[kind], self._suppressed[kind] = now, 0
        self._show(f"{text} ({suppressed:,} more like this before)" if suppressed else text)
        return True


def pause(clock: Clock, halted: threading.Event, seconds: float, stopped: Callable[[], bool]) -> None:
    """Wait so long, but not when ``halted`` or ``stopped``. The latter is called five times a second."""
    until = clock.now() + seconds
    while (left := until - clock.now()) > 0 and not stopped():
        if clock.wait(halted, min(left, LOOK_S)):
            return
