"""When a run does what: how many updates are owed, and what is due every so many steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping


class FifoUpdates:
    """One update for every full batch of data that has not been used yet (``use_replay_buffer: false``).

    ready:      number of windows that wait to be used
    batch_size: windows of an update
    start_step: steps before learning begins
    """

    def __init__(self, ready: Callable[[], int], batch_size: int, start_step: int) -> None:
        self._ready, self._batch_size, self._from = ready, batch_size, start_step

    def due(self, step: int) -> int:
        """See :class:`Pace`."""
        return 0 if step < self._from else self._ready() // self._batch_size

    def defer(self, step: int) -> None:
        """Nothing to put off: what waits is counted anew each time."""

    def carry_over(self, updates: int) -> None:
        """What could not be done waits on."""

    def achieved(self, step: int, updates: int) -> float:
        """See :class:`Pace`."""
        return updates / (step - self._from) if step > self._from else math.nan

    def state(self) -> dict[str, float]:
        """Nothing: what waits is counted anew each time."""
        return {}

    def load_state(self, state: Mapping[str, float]) -> None:
        """See :class:`Pace`."""


class RatioUpdates:
    """Gradient updates owed for environment steps: exactly ``ratio`` per step, fractions carried over.

    ratio:      updates per environment step, whatever the number of environments
    start_step: steps before learning begins; they are not owed for
    """

    def __init__(self, ratio: float, start_step: int) -> None:
        self.ratio = ratio
        self._from = self._since = start_step  # where learning began, and where this ratio did
        self._done = 0  # of what is due since then
        self._step = 0

    def due(self, step: int) -> int:
        """Updates to do now that ``step`` environment steps have been taken; they count as done."""
        self._step = step
        due = math.floor(self.ratio * max(0, step - self._since) + 1e-9)
        owed, self._done = due - self._done, due
        return owed

    def defer(self, step: int) -> None:
        """Nothing could be learned yet: begin to count from ``step``."""
        self._from = self._since = step
        self._done = 0

    def carry_over(self, updates: int) -> None:
        """So many of those owed could not be done now and remain owed."""
        self._done -= updates

    def achieved(self, step: int, updates: int) -> float:
        """Updates per environment step since learning began; NaN before."""
        return updates / (step - self._from) if step > self._from else math.nan

    def state(self) -> dict[str, float]:
        """See :class:`Pace`."""
        return {
            "ratio": self.ratio,
            "from": self._from,
            "since": self._since,
            "done": self._done,
            "step": self._step,
        }

    def load_state(self, state: Mapping[str, float]) -> None:
        """See :class:`Pace`. With another ratio than before, that counts for the steps from here on only."""
        self._from, self._since = int(state["from"]), int(state["since"])
        self._done, self._step = int(state["done"]), int(state["step"])
        if state["ratio"] != self.ratio:
            remain = math.floor(state["ratio"] * max(0, self._step - self._since) + 1e-9) - self._done
            self._since, self._done = max(self._step, self._since), -remain


class Every:
    """True once whenever a counter crosses a multiple of ``interval``; never for −1.

    start: where the counter stands; multiples up to there have been crossed before
    """

    def __init__(self, interval: int, start: int = 0) -> None:
        self._interval = interval
        self._last = start

    def due(self, count: int) -> bool:
        """Whether ``count`` has crossed a multiple since the last call."""
        if self._interval < 0:
            return False
        crossed = count // self._interval > self._last // self._interval
        self._last = count
        return crossed
