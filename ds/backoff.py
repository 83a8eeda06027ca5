"""Time between learner and actors: a clock that tests can replace, growing pauses, lines that stay few."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
QUIET_S = 60.0
LOOK_S = 0.2
"""Seconds between two checks of a waiting thread whether the user wants to end."""

ShowLine = Callable[[str], None]
"""Output of one line for a person; called from any thread."""


class Clock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return the seconds since some moment; never decreases."""
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
    """Log of few lines a minute of each kind; a later one says how many were left out. Thread-safe.

    now: seconds, never going back
    """

    def __init__(self, show: ShowLine, now: Callable[[], float]) -> None:
        self._show, self._now = show, now
        self._lock = threading.Lock()
        self._kinds: dict[str, tuple[float, int, int]] = {}  # begin of the minute, lines in it, left out

    def say(self, kind: str, text: str, *, most: int = 1) -> None:
        """Show a line, unless ``most`` of its kind have been shown within a minute."""
        with self._lock:
            now = self._now()
            begun, shown, left_out = self._kinds.get(kind, (now, 0, 0))
            if now - begun >= QUIET_S:
                begun, shown = now, 0
            if shown >= most:
                self._kinds[kind] = (begun, shown, left_out + 1)
                return
            self._kinds[kind] = (begun, shown + 1, 0)
        self._show(f"{text} ({left_out:,} more like this before)" if left_out else text)
