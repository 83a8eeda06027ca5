"""Schedules of a run: step sizes that fall, updates that are owed, and events every so many steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from typing_extensions import override

from algorithm.keys.run import RunConfig


def rate_factor(run: RunConfig, step: int, last: int) -> float:
    """Return the factor on all step sizes at environment step ``step`` of a run with ``last`` of them.

    It is e + (1 − e) x, with the end e and x = left, or (1 − cos π left) / 2 (arXiv 1608.03983, eq. 5), where
    left falls from 1 to 0 behind ``learning_rate_hold``. A run without an end, −1, keeps its step sizes.
    """
    hold = run.learning_rate_hold
    left = 1.0 if last < 0 else 1.0 - min(1.0, max(0, step - hold) / max(1, last - hold))
    shapes = {"constant": 1.0, "linear": left, "cosine": 0.5 - 0.5 * math.cos(math.pi * left)}
    return run.learning_rate_end + (1.0 - run.learning_rate_end) * shapes[run.learning_rate_schedule]


class RatioUpdates:
    """Gradient updates owed for environment steps: exactly ``ratio`` per step, fractions carried over.

    ratio:      updates per environment step, whatever the number of environments
    start_step: steps before learning begins; no updates are owed for them
    """

    def __init__(self, ratio: float, start_step: int) -> None:
        self.ratio = ratio
        self._from = self._since = start_step  # the steps at which learning and this ratio began
        self._done = 0  # updates made since then
        self._step = 0

    def due(self, step: int) -> int:
        """Return the updates to make after ``step`` environment steps; they count as made."""
        self._step = step
        owed = self.owed
        self._done += owed
        return owed

    @property
    def owed(self) -> int:
        """Updates to make after the last step that is known."""
        return self._due(self.ratio) - self._done

    def _due(self, ratio: float) -> int:
        return math.floor(ratio * max(0, self._step - self._since) + 1e-9)

    def defer(self, step: int) -> None:
        """Count from ``step``: no update was possible before."""
        self._from = self._since = step
        self._done = 0

    def carry_over(self, updates: int) -> None:
        """Keep so many updates owed that could not be made now."""
        self._done -= updates

    def achieved(self, step: int, updates: int) -> float:
        """Return updates per environment step since learning began; NaN before."""
        return updates / (step - self._from) if step > self._from else math.nan

    def state(self) -> dict[str, float]:
        """Return what :meth:`load_state` continues from, as JSON."""
        return {
            "ratio": self.ratio,
            "from": self._from,
            "since": self._since,
            "done": self._done,
            "step": self._step,
        }

    def load_state(self, state: Mapping[str, float]) -> None:
        """Continue from what :meth:`state` returned; a changed ratio applies only to later steps."""
        self._from, self._since = int(state["from"]), int(state["since"])
        self._done, self._step = int(state["done"]), int(state["step"])
        if state["ratio"] != self.ratio:
            remain = self._due(state["ratio"]) - self._done
            self._since, self._done = max(self._step, self._since), -remain


class FifoUpdates(RatioUpdates):
    """One update for every full batch of data that has not been used yet (``use_replay_buffer: false``).

    Waiting windows are counted anew each time, so none is owed.

    ready:      number of windows that wait to be used
    batch_size: windows of an update
    start_step: steps before learning begins
    """

    def __init__(self, ready: Callable[[], int], batch_size: int, start_step: int) -> None:
        super().__init__(1.0 / batch_size, start_step)
        self._ready = ready
        self._batch_size = batch_size

    @override
    def due(self, step: int) -> int:
        """Return one update for each full batch; 0 before learning begins."""
        self._step = step
        return self.owed

    @property
    @override
    def owed(self) -> int:
        """Updates to make; they are not counted."""
        return 0 if self._step < self._from else self._ready() // self._batch_size


class Every:
    """An event that is due whenever a counter crosses a multiple of ``interval``; never for −1.

    start: initial value of the counter; multiples up to it count as crossed
    shortest: the first intervals are halved up to three times, but not below this; whenever eight of them are
              over, they double. By default they are whole from the beginning
    """

    def __init__(self, interval: int, start: int = 0, *, shortest: int | None = None) -> None:
        self._interval = interval
        self._last = start
        self._parts = 1
        while shortest and self._parts < 8 and interval >= 2 * self._parts * shortest:
            self._parts *= 2

    def due(self, count: int) -> bool:
        """Return whether ``count`` has crossed a multiple since the last call."""
        if self._interval < 0:
            return False
        while self._parts > 1 and self._last * self._parts >= 8 * self._interval:
            self._parts //= 2
        parts = self._parts
        crossed = count * parts // self._interval > self._last * parts // self._interval
        self._last = count
        return crossed
