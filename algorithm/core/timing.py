"""Time of a training by its parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal

Part = Literal["act", "step", "wait", "store", "sample", "update", "compile", "other"]

MEASURED: tuple[Part, ...] = ("act", "step", "store", "sample", "update")
"""Parts that have a metric of their own, ``time/share_<part>``; ``other`` is the rest.

``wait`` (for steps of other processes) and ``compile`` have one in a training that does so at all.
"""

_RARE: tuple[Part, ...] = ("wait", "compile")


class Stopwatch:
    """A watch that charges the time since the last call to the part that just ended; no time is left out.

    A mark costs a fraction of a microsecond, so that it may run even if its times are not read.

    clock: seconds, never going back
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds: dict[Part, float] = dict.fromkeys((*MEASURED, *_RARE, "other"), 0.0)
        self._shared = dict(self._seconds)  # as it was when shares were last asked for
        self._last = clock()

    def lap(self, part: Part) -> None:
        """Charge the time since the last mark to ``part``."""
        now = self._clock()
        self._seconds[part] += now - self._last
        self._last = now

    def skip(self) -> None:
        """Leave out the time since the last mark: it is not training."""
        self._last = self._clock()

    @property
    def seconds(self) -> Mapping[Part, float]:
        """Seconds of each part so far."""
        return dict(self._seconds)

    def load(self, seconds: Mapping[Part, float]) -> None:
        """Continue from the ``seconds`` spent before; the clock starts now."""
        self._seconds.update(seconds)
        self._shared = dict(self._seconds)
        self.skip()

    @property
    def total(self) -> float:
        """Seconds of training so far, up to the last mark."""
        return sum(self._seconds.values())

    def shares(self) -> dict[str, float]:
        """Return metrics: the parts' shares of the time since the last call; empty if there is none."""
        since = {part: seconds - self._shared[part] for part, seconds in self._seconds.items()}
        self._shared = dict(self._seconds)
        total = sum(since.values())
        shown = (*MEASURED, *(part for part in _RARE if self._seconds[part] > 0.0))
        return {f"time/share_{part}": since[part] / total for part in shown} if total > 0.0 else {}


def shares_text(seconds: Mapping[Part, float]) -> str:
    """Return the share of each part that has one percent or more, the largest first."""
    total = sum(seconds.values()) or 1.0
    parts = sorted(seconds.items(), key=lambda item: -item[1])
    return " · ".join(f"{part} {value / total:.0%}" for part, value in parts if value >= 0.01 * total)
