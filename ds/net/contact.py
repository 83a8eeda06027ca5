"""State of an actor's connection, and its pauses: growing ones, by a clock that tests can replace."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ds.net.protocol import LearnerAway, Unreachable

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
INTERVAL_S = 60.0
LOOK_S = 0.2
"""Seconds between two checks of a waiting thread whether the user has stopped the actor."""

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
    """Log of few lines a minute of each kind; a later one counts those left out. Thread-safe.

    now: seconds, never going back
    """

    def __init__(self, show: ShowLine, now: Callable[[], float]) -> None:
        self._show, self._now = show, now
        self._lock = threading.Lock()
        self._kinds: dict[str, tuple[float, int, int]] = {}  # begin of the minute, lines in it, left out

    def show(self, kind: str, text: str, *, most: int = 1) -> None:
        """Show a line, unless ``most`` of its kind have been shown within a minute."""
        with self._lock:
            now = self._now()
            begun, shown, left_out = self._kinds.get(kind, (now, 0, 0))
            if now - begun >= INTERVAL_S:
                begun, shown = now, 0
            if shown >= most:
                self._kinds[kind] = (begun, shown, left_out + 1)
                return
            self._kinds[kind] = (begun, shown + 1, 0)
        self._show(f"{text} ({left_out:,} more like this before)" if left_out else text)


@dataclass
class Sent:
    """Counts of what an actor has sent, for the learner.

    taken:       number of the last message that a learner has answered for
    taken_steps: environment steps in the messages that a learner took
    waiting:     messages that wait to be sent, those being sent included
    dropped:     environment steps given up so far
    """

    taken: int = 0
    taken_steps: int = 0
    waiting: int = 0
    dropped: int = 0


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
                    "net_config.patience sets how long an actor waits (-1: forever)",
                )

    def answered(self) -> None:
        """Note a call that was answered."""
        with self._lock:
            if self.away and self._reported:
                back = "back" if self._answered_before else "there"
                steps = self._dropped() - self._dropped_then
                line = f"the learner is {back} after {self._now() - self._since:.0f} s"
                self._show(line + (f" · {steps:,} steps dropped" if steps else ""))
            self.away, self._answered_before = False, True


class WeightFetcher:
    """Fetcher of the newest weights that receipts have announced: one thread fetches, another takes them.

    fetch:   the chunks of weights newer than a version; none if there are no newer ones
    version: of the newest weights that this actor has seen, 0 for none
    """

    def __init__(self, fetch: Callable[[int], list[bytes]]) -> None:
        self.version = 0
        self._fetch = fetch
        self._announced = 0  # version in the last receipt
        self._news = threading.Event()  # there was a receipt
        self._unread: deque[list[bytes]] = deque(maxlen=1)

    def announce(self, version: int) -> None:
        """Note the version that a receipt announces."""
        self._announced = version
        self._news.set()

    def mark_loaded(self, version: int) -> None:
        """Note the version of loaded weights."""
        self.version = max(self.version, version)

    def wait_until_behind(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a receipt; return whether newer weights can be fetched."""
        self._news.wait(seconds)
        self._news.clear()
        return self._announced > self.version

    def fetch(self) -> None:
        """Fetch newer weights if there are any. Raises what ``fetch`` does, Unreachable if nothing comes."""
        version, have = self._announced, self.version
        if version <= have:
            return
        chunks = self._fetch(have)
        if not chunks:
            raise Unreachable("the weights that it announced are missing")
        self._unread.append(chunks)
        self.mark_loaded(version)

    def take(self) -> list[bytes] | None:
        """Return the newest weights that have not been taken yet."""
        return self._unread.pop() if self._unread else None
