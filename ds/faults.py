"""Tells of what strangers and broken actors do without filling the log."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

INTERVAL_S = 60.0
"""Between two lines of the same kind."""

BURST = 64
"""Lines of a minute on actors that come and leave."""


class Faults:
    """Called with a kind and who did what; at most one line a kind is logged in :data:`INTERVAL_S`.

    Safe to use from several threads. A million wrong messages cost a number and a line a minute.
    """

    def __init__(self, log: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._told: dict[str, tuple[float, int]] = {}

    def __call__(self, kind: str, what: str) -> None:
        """One more fault. kind: one of few words; what: the peer and the reason, on one line."""
        with self._lock:
            count = self._counts[kind] = self._counts.get(kind, 0) + 1
            now = self._clock()
            last, counted = self._told.get(kind, (float("-inf"), 0))
            if now - last < INTERVAL_S:
                return
            self._told[kind] = (now, count)
        more = count - counted - 1
        self._log(f"{kind}: {what}" + (f" · {more} more since the last such line" if more else ""))

    @property
    def counts(self) -> dict[str, int]:
        """How many of each kind so far."""
        with self._lock:
            return dict(self._counts)


class Visitors:
    """Lines on who comes and leaves: the first :data:`BURST` of each minute, then a line with how many more.

    Not safe to use from several threads.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lines: deque[str] = deque()
        self._begun, self._told, self._left_out = float("-inf"), 0, 0

    def tell(self, line: str) -> None:
        """One of them."""
        self._begin()
        self._told += 1
        if self._told <= BURST:
            self._lines.append(line)
        else:
            self._left_out += 1

    def take(self) -> list[str]:
        """The lines since the last call."""
        self._begin()
        found = list(self._lines)
        self._lines.clear()
        return found

    def _begin(self) -> None:
        """The next minute, if it is time."""
        now = self._clock()
        if now - self._begun >= INTERVAL_S:
            if self._left_out:
                self._lines.append(f"actors have come, left or lost something {self._left_out:,} times more")
            self._begun, self._told, self._left_out = now, 0, 0
