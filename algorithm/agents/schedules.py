"""Schedules of a run: learning rates, updates that are due, and events at an interval of steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from typing_extensions import override

from algorithm.keys.run import RunConfig


def rate_factor(run: RunConfig, step: int, last: int) -> float:
    """Return the factor on all learning rates at environment step ``step`` of a run of ``last`` steps.

    It is e + (1 − e) x, with e = ``learning_rate_end`` and x = left, or (1 − cos π left) / 2 (eq. 5 of arXiv
    1608.03983); left falls from 1 to 0 after ``learning_rate_hold``. For no end, last = −1, left is 1.
    """
    hold = run.learning_rate_hold
    left = 1.0 if last < 0 else 1.0 - min(1.0, max(0, step - hold) / max(1, last - hold))
    shapes = {"constant": 1.0, "linear": left, "cosine": 0.5 - 0.5 * math.cos(math.pi * left)}
    return run.learning_rate_end + (1.0 - run.learning_rate_end) * shapes[run.learning_rate_schedule]


class RatioUpdates:
    """Schedule of gradient updates: exactly ``ratio`` per environment step, fractions carried over.

    ratio:      updates per environment step, for any number of environments
    start_step: steps before learning begins; no updates are due for them
    """

    def __init__(self, ratio: float, start_step: int) -> None:
        self.ratio = ratio
        self._from = self._since = start_step  # the steps at which learning and this ratio began
        self._done = 0  # updates made since then
        self._step = 0

    def due(self, step: int) -> int:
        """Return the number of updates to make after ``step`` environment steps, and count them as made."""
        self._step = step
        owed = self.owed
        self._done += owed
        return owed

    @property
    def owed(self) -> int:
        """Number of updates to make after the step of the last :meth:`due`."""
        return self._due(self.ratio) - self._done

    def _due(self, ratio: float) -> int:
        return math.floor(ratio * max(0, self._step - self._since) + 1e-9)

    def defer(self, step: int) -> None:
        """Begin to count at ``step``, because no update was possible before."""
        self._from = self._since = step
        self._done = 0

    def carry_over(self, updates: int) -> None:
        """Keep ``updates`` due that could not be made now."""
        self._done -= updates

    def achieved(self, step: int, updates: int) -> float:
        """Return ``updates`` divided by the environment steps since learning began; NaN before."""
        return updates / (step - self._from) if step > self._from else math.nan

    def state(self) -> dict[str, float]:
        """Return the state for :meth:`load_state`, as JSON."""
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
    """Schedule of an update for every full batch of unused windows (``use_replay_buffer: false``).

    Unused windows are counted anew each time, so no updates are carried over.

    ready:      returns the number of unused windows
    batch_size: windows of an update
    start_step: steps before learning begins
    """

    def __init__(self, ready: Callable[[], int], batch_size: int, start_step: int) -> None:
        super().__init__(1.0 / batch_size, start_step)
        self._ready = ready
        self._batch_size = batch_size

    @override
    def due(self, step: int) -> int:
        """Return the number of full batches of unused windows; 0 before learning begins."""
        self._step = step
        return self.owed

    @property
    @override
    def owed(self) -> int:
        """Number of updates to make; they are not counted as made."""
        return 0 if self._step < self._from else self._ready() // self._batch_size


class Every:
    """Event that is due whenever a counter crosses a multiple of ``interval``; never if that is −1.

    start: initial value of the counter; multiples up to it count as crossed
    shortest: the first intervals are halved up to three times, but not below this length; they double after
              eight of them. None: all intervals are whole
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
