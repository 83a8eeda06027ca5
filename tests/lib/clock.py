"""Time that passes only when a test says so."""

from __future__ import annotations

from algorithm.env.pool.pace import Pace


class Time:
    """A clock that only sleep and ``spend`` move."""

    now = 100.0

    def spend(self, seconds: float) -> None:
        self.now += seconds

    def pace(self, hz: float = 10.0) -> Pace:
        return Pace(hz, clock=lambda: self.now, sleep=self.spend)
