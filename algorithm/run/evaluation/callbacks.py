"""Callbacks of evaluation episodes: the base, progress lines, several in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from typing_extensions import override

from algorithm.agents.roles import Recorder
from algorithm.core.data import Episode
from algorithm.core.wording import counted


class EvalCallback:
    """Base of hooks of an evaluation, which must leave environments and arrays unchanged."""

    def recorder(self, behaviour: str) -> Recorder | None:
        """Return the recorder of a behaviour's transitions, or None.

        ``add_steps`` receives a :class:`~algorithm.core.data.StepBatch`, a transition of each agent; its
        arrays are valid until it returns. ``close`` means that an agent's episode was lost without an end.
        """
        return None

    def begin(self) -> None:
        """Run after the environments have been reset."""

    def step(self, ended: Sequence[Episode]) -> None:
        """Run after each step of all environments. ended: episodes that it finished."""

    def end(self) -> None:
        """Run at the end, also after an error or a signal."""


NULL_CALLBACK = EvalCallback()

_PROGRESS_S = 10.0  # between two lines


class ProgressLines(EvalCallback):
    """Callback that shows a line every ten seconds.

    show: called with the line
    clock: seconds, never going back
    """

    def __init__(self, show: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._show, self._clock = show, clock
        self._steps = self._ended = 0
        self._next = clock() + _PROGRESS_S

    @override
    def step(self, ended: Sequence[Episode]) -> None:
        self._steps += 1
        self._ended += len(ended)
        if (now := self._clock()) >= self._next:
            self._next = now + _PROGRESS_S
            episodes = counted(self._ended, "episode")
            self._show(f"playing: {self._steps:,} steps of the environment, {episodes} ended")


class CallbackList(EvalCallback):
    """Several callbacks, run in their order; at most one of them records transitions."""

    def __init__(self, *callbacks: EvalCallback) -> None:
        self._callbacks = callbacks

    @override
    def recorder(self, behaviour: str) -> Recorder | None:
        candidates = [callback.recorder(behaviour) for callback in self._callbacks]
        recorders = [recorder for recorder in candidates if recorder is not None]
        assert len(recorders) <= 1, "two of them record"
        return recorders[0] if recorders else None

    @override
    def begin(self) -> None:
        for callback in self._callbacks:
            callback.begin()

    @override
    def step(self, ended: Sequence[Episode]) -> None:
        for callback in self._callbacks:
            callback.step(ended)

    @override
    def end(self) -> None:
        with ExitStack() as stack:
            for callback in reversed(self._callbacks):
                stack.callback(callback.end)
