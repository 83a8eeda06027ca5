"""What an actor knows of its learner: whether it answers, and its newest weights."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ds.backoff import ShowLine
from ds.protocol import LearnerAway, Unreachable

HICCUP_S = 1.0
"""Seconds of silence before a line, once the learner has answered before."""

QUIET_S = 10.0
"""Seconds between two lines about missing answers."""


class ConnectionMonitor:
    """Availability of the learner, reported by every thread that calls it.

    where:    address of the learner, for a person
    patience: seconds without an answer after which the actor ends; −1 for ever
    dropped:  environment steps given up so far
    """

    def __init__(
        self,
        where: str,
        patience: float,
        *,
        show: ShowLine,
        now: Callable[[], float],
        dropped: Callable[[], int],
    ) -> None:
        self._where, self._patience, self._show, self._now = where, patience, show, now
        self._dropped = dropped
        self._lock = threading.Lock()
        self._answered_before = False
        self._reported = False  # that it does not answer
        self._quiet_until = self._now()
        self._since, self._dropped_then = 0.0, 0
        self.away = False

    def lost(self, error: Unreachable) -> None:
        """Note a call without an answer. Raises LearnerAway after ``patience`` seconds."""
        with self._lock:
            now = self._now()
            if not self.away:
                self.away, self._reported = True, False
                self._since, self._dropped_then = now, self._dropped()
            hiccup = self._answered_before and now - self._since < HICCUP_S
            if not (self._reported or hiccup or now < self._quiet_until):
                self._reported, self._quiet_until = True, now + QUIET_S
                line = f"waiting for the learner at {self._where} ({error})"
                if self._answered_before:
                    line = f"no answer from the learner ({error}): trying again"
                self._show(line)
            if 0 <= self._patience <= now - self._since:
                raise LearnerAway(
                    f"no learner answered for {now - self._since:.0f} s",
                    where=self._where,
                    why=str(error),
                    fix="start the learner, or correct net_config.learner_host and learner_port; "
                    "net_config.patience says how long an actor waits (-1: for ever)",
                )

    def answered(self) -> None:
        """Note a call that was answered."""
        with self._lock:
            if self.away and self._reported:
                back = "back" if self._answered_before else "there"
                steps = self._dropped() - self._dropped_then
                line = f"the learner is {back} after {self._now() - self._since:.0f} s"
                self._show(line + (f" · {steps:,} steps given up" if steps else ""))
            self.away, self._answered_before = False, True


class WeightFetcher:
    """Fetcher of the newest weights that receipts have announced; one thread fetches.

    fetch: the chunks of weights newer than a version; none if there are no newer ones
    """

    def __init__(self, fetch: Callable[[int], list[bytes]]) -> None:
        self._fetch = fetch
        self._changed = threading.Condition()
        self._announced = 0  # version in the last receipt
        self._missing = -1  # announced, requested, and not there
        self._unread: list[bytes] | None = None
        self.version = 0
        """Version of the newest weights that this actor has seen, 0 for none."""

    def announce(self, version: int) -> None:
        """Note the version that a receipt announces."""
        with self._changed:
            self._announced = version
            self._changed.notify_all()

    def mark_loaded(self, version: int) -> None:
        """Note the version of loaded weights."""
        with self._changed:
            self.version = max(self.version, version)

    def retry_missing(self) -> None:
        """Try again what an earlier learner did not have."""
        with self._changed:
            self._missing = -1
            self._changed.notify_all()

    def wait_until_behind(self, seconds: float) -> bool:
        """Wait, at most so long, until newer weights can be fetched. Return whether they can."""
        with self._changed:
            return self._changed.wait_for(self._is_behind, seconds)

    def fetch(self) -> None:
        """Fetch newer weights if there are any. Only one thread may do so; errors are those of ``fetch``."""
        with self._changed:
            if not self._is_behind():
                return
            version, have = self._announced, self.version
        chunks = self._fetch(have)
        with self._changed:
            if not chunks:
                self._missing = version
                return
            self.version = max(self.version, version)
            self._unread = chunks

    def take(self) -> list[bytes] | None:
        """Return the newest weights that have not been taken yet."""
        with self._changed:
            unread, self._unread = self._unread, None
            return unread

    def _is_behind(self) -> bool:
        return self._announced > self.version and self._announced != self._missing
