"""Whether the learner answers, for how long it has not, and what a person is told of that."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ds.errors import LearnerAway, Unreachable
from ds.patience import Clock, Tell

HICCUP_S = 1.0
"""A shorter silence is not worth a line, once the learner has answered before."""

QUIET_S = 10.0
"""Between two lines that say that it does not answer."""


class Presence:
    """Told by every thread how its calls went.

    where:    address of the learner, for a person
    patience: seconds without an answer after which nobody waits any longer; −1 for ever
    dropped:  environment steps given up so far
    """

    def __init__(
        self, *, where: str, patience: float, tell: Tell, clock: Clock, dropped: Callable[[], int]
    ) -> None:
        self._where, self._patience, self._tell, self._clock = where, patience, tell, clock
        self._dropped = dropped
        self._lock = threading.Lock()
        self._met = False  # it has answered before
        self._told = False  # that it does not
        self._quiet_until = clock.now()
        self._since, self._dropped_then = 0.0, 0
        self.away = False

    def lost(self, error: Unreachable) -> None:
        """A call was not answered. Raises LearnerAway if patience is at its end."""
        with self._lock:
            now = self._clock.now()
            if not self.away:
                self.away, self._told = True, False
                self._since, self._dropped_then = now, self._dropped()
            if (
                not self._told
                and now >= self._quiet_until
                and (not self._met or now - self._since >= HICCUP_S)
            ):
                self._told, self._quiet_until = True, now + QUIET_S
                self._tell(self._begins_to_wait(error))
            if 0 <= self._patience <= now - self._since:
                raise LearnerAway(
                    f"no learner answered for {now - self._since:.0f} s",
                    where=self._where,
                    why=str(error),
                    fix="start the learner, or correct net_config.learner_host and learner_port; "
                    "net_config.patience says how long an actor waits (-1: for ever)",
                )

    def answered(self) -> None:
        """A call was answered."""
        with self._lock:
            if self.away and self._told:
                self._tell(self._is_back())
            self.away, self._met = False, True

    def _begins_to_wait(self, error: Unreachable) -> str:
        if self._met:
            return f"no answer from the learner ({error}): trying again"
        return f"waiting for the learner at {self._where} ({error})"

    def _is_back(self) -> str:
        seconds = self._clock.now() - self._since
        if not self._met:
            return f"the learner is there after {seconds:.0f} s"
        steps = self._dropped() - self._dropped_then
        return f"the learner is back after {seconds:.0f} s" + (
            f" · {steps:,} steps given up" if steps else ""
        )
