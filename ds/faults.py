"""Counts what strangers and broken actors send, and tells of it without filling the log."""

from __future__ import annotations

import threading
from collections.abc import Callable

INTERVAL_S = 60.0
"""Between two lines of the same kind."""


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
