"""Time of a training by its phases, and rates of events."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal

Phase = Literal["act", "step", "wait", "store", "sample", "update", "compile", "other"]

MEASURED: tuple[Phase, ...] = ("act", "step", "store", "sample", "update")
"""Phases that have a metric of their own, ``time/share_<phase>``; ``other`` is the rest.

``wait`` (for steps of other processes) and ``compile`` have one in a training that does so at all.
"""

_RARE: tuple[Phase, ...] = ("wait", "compile")


class Stopwatch:
    """A watch that charges the time since the last call to the phase that just ended; no time is left out.

    A call costs a fraction of a microsecond, so that it may run even if its times are not read.

    clock: seconds, never going back
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds: dict[Phase, float] = dict.fromkeys((*MEASURED, *_RARE, "other"), 0.0)
        self._shared = dict(self._seconds)  # as it was at the last call of shares()
        self._last = clock()

    def lap(self, phase: Phase) -> None:
        """Charge the time since the last call to ``phase``."""
        now = self._clock()
        self._seconds[phase] += now - self._last
        self._last = now

    def skip(self) -> None:
        """Leave out the time since the last call: it is not training."""
        self._last = self._clock()

    @property
    def seconds(self) -> Mapping[Phase, float]:
        """Seconds of each phase so far."""
        return dict(self._seconds)

    def load(self, seconds: Mapping[Phase, float]) -> None:
        """Continue from the ``seconds`` spent before; the clock starts now."""
        self._seconds.update(seconds)
        self._shared = dict(self._seconds)
        self.skip()

    @property
    def total(self) -> float:
        """Seconds of training so far, up to the last call of :meth:`lap`."""
        return sum(self._seconds.values())

    def shares(self) -> dict[str, float]:
        """Return metrics: each phase's share of the time since the last call; empty if no time passed."""
        since = {phase: seconds - self._shared[phase] for phase, seconds in self._seconds.items()}
        self._shared = dict(self._seconds)
        total = sum(since.values())
        shown = (*MEASURED, *(phase for phase in _RARE if self._seconds[phase] > 0.0))
        return {f"time/share_{phase}": since[phase] / total for phase in shown} if total > 0.0 else {}


class Rate:
    """Rate of events per second over the last ``window_s`` seconds of a clock."""

    def __init__(self, window_s: float = 20.0, *, clock: Callable[[], float]) -> None:
        self._window_s = window_s
        self._clock = clock
        self._marks: deque[tuple[float, int]] = deque()

    def update(self, count: int) -> float:
        """Record the total number of events so far and return the rate; NaN until there are two records."""
        now = self._clock()
        self._marks.append((now, count))
        while len(self._marks) > 2 and now - self._marks[1][0] >= self._window_s:
            self._marks.popleft()
        then, before = self._marks[0]
        return (count - before) / (now - then) if now > then else math.nan


def shares_text(seconds: Mapping[Any, float]) -> str:
    """Return the share of each phase that has one percent or more, the largest first, as text."""
    total = sum(seconds.values()) or 1.0
    phases = sorted(seconds.items(), key=lambda item: -item[1])
    return " · ".join(f"{phase} {value / total:.0%}" for phase, value in phases if value >= 0.01 * total)
