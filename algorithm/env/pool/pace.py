"""Actions at fixed times, as a robot needs them, whatever the learner does between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from algorithm.core.data import State
from algorithm.core.errors import EnvError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.steps import Float
from algorithm.env.base import ResetResult, StepResult
from algorithm.env.pool.executor import Executor
from algorithm.env.pool.pool import EnvPool

TOLERANCE = 0.05
"""Part of a period by which an action may be late without being counted: 5 ms at 10 Hz."""

MEASURED = 10
"""Steps at the start of which the quickest tells whether the rate can be kept."""


class Pace:
    """Times of the actions of an episode, 1/``hz`` apart from its first one on.

    Between episodes nothing is timed. An action that is late by more than a period takes the next time that
    has not passed, and the missed ones are not made up for.

    hz:          actions per second
    clock, sleep: seconds; replaced in tests
    """

    def __init__(
        self,
        hz: float,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._period, self._clock, self._sleep = 1.0 / hz, clock, sleep
        self._due: float | None = None  # time of the next action; None between episodes
        self._since = clock()  # the end of the last step or update
        self._update = self._acting = 0.0  # seconds that they take, the longest ones decaying
        self._learns = False  # an update has begun since the last step, and no pause
        self._steps: list[float] = []
        self._actions = self._late = 0  # since the last summary
        self._delay = 0.0  # the greatest one since then

    def wait(self) -> None:
        """Wait for the time of the next action, which follows at once.

        Raises EnvError if none of the first steps was quick enough.
        """
        self._check_rate()
        now = self._clock()
        if self._due is None:  # an evaluation may have come before
            self._due = now
        elif self._learns:  # with what acting takes
            self._update = self._longest(self._update, now)
        else:
            self._acting = self._longest(self._acting, now)
        if now < self._due:
            self._sleep(self._due - now)
            now = self._clock()
        self._actions += 1
        self._late += now - self._due > TOLERANCE * self._period
        self._delay = max(self._delay, now - self._due)
        missed = (now - self._due) // self._period
        self._due += self._period * (1 + missed)
        self._since = now

    def stepped(self) -> None:
        """Note that the environment has taken its step."""
        now = self._clock()
        if len(self._steps) < MEASURED:
            self._steps.append(now - self._since)
        self._since, self._learns = now, False

    def _check_rate(self) -> None:
        """Raise EnvError if the first steps have all taken more than a period."""
        if len(self._steps) == MEASURED and min(self._steps) > self._period:
            raise EnvError(
                f"the environment cannot be stepped {1 / self._period:g} times a second",
                where="base_config.control_hz",
                why=f"the quickest of its first {MEASURED} steps took {1000 * min(self._steps):.0f} ms, "
                f"and there are {1000 * self._period:.0f} ms for each",
                fix="lower control_hz; or let the environment not wait itself, since the loop does",
            )

    def rest(self) -> None:
        """End an episode: until the next action nothing is timed."""
        self._due = None

    def must_pause(self) -> bool:
        """Return whether another update would make the next action late. To be called before each update."""
        now = self._clock()
        if self._learns:
            self._update = self._longest(self._update, now)
        self._since = now
        pauses = self._due is not None and now + self._update + self._acting > self._due
        self._learns = not pauses
        return pauses

    def _longest(self, before: float, now: float) -> float:
        """Return the time of what has just ended, or the decayed time ``before`` if that is longer."""
        return max(0.9 * before, now - self._since)

    def metrics(self) -> dict[str, float]:
        """Return the share of late actions and the greatest delay in milliseconds since the last call."""
        if not self._actions:
            return {}
        values = {"time/overrun": self._late / self._actions, "time/delay_ms": 1000 * self._delay}
        self._actions = self._late = 0
        self._delay = 0.0
        return values


class PacedPool(EnvPool):
    """Environments whose actions come at fixed times. pace: those times; the rest as of :class:`.EnvPool`."""

    def __init__(self, executor: Executor, *, pace: Pace, **options: Any) -> None:  # noqa: ANN401 - EnvPool's
        super().__init__(executor, **options)
        self._pace = pace

    @override
    def step(self, actions: Mapping[str, Float]) -> dict[str, StepResult]:
        self._pace.wait()
        results = super().step(actions)
        self._pace.stepped()
        result = results[DEFAULT_BEHAVIOUR]
        if result.skipped is not None or (result.terminated | result.truncated).any():
            self._pace.rest()
        return results

    @override
    def reset(
        self, indices: Sequence[int] | None = None, *, episode: int | None = None
    ) -> dict[str, ResetResult]:
        results = super().reset(indices, episode=episode)
        self._pace.rest()
        return results

    @override
    def resume(self, state: State) -> dict[int, str]:
        """End all open episodes: a robot that repeated its actions would move where nobody looks."""
        for i, episode in enumerate(state.arrays["episode"][: self._n].tolist()):
            self._plan_episode(i, episode + 1)
        return dict.fromkeys(range(self._n), "what a robot has done is not repeated (control_hz)")

    @override
    def must_pause(self) -> bool:
        return self._pace.must_pause()

    @override
    def metrics(self) -> dict[str, float]:
        """Return the values of the pool, and how late actions were."""
        return super().metrics() | self._pace.metrics()
