"""Callbacks of evaluation episodes: none, a function per transition, several in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

from typing_extensions import override

from algorithm.data import Segment
from algorithm.roles import Episode, Recorder


class Callback(Protocol):
    """Hooks of an evaluation; they must leave environments and arrays unchanged."""

    def recorder(self, behaviour: str) -> Recorder | None:
        """Return the recorder of a behaviour's transitions, or None.

        ``add`` receives a :class:`~algorithm.data.Segment` of one transition per agent and step: the
        observations before and after (``obs`` name -> [2, ...], ``action_mask`` [2, ΣN]), the hidden states
        before each of these (``carry`` [2, *C], of width 0 without memory), the flat ``action`` [1, A], and
        ``reward``, ``terminated``, ``truncated`` [1]. ``stream`` is the agent's id, ``start_step`` the step
        in its episode. ``close`` means that an agent's episode was lost without an end.
        """
        ...

    def begin(self) -> None:
        """Run after the environments have been reset."""
        ...

    def step(self, ended: Sequence[Episode]) -> None:
        """Run after each step of all environments; ``ended`` are the episodes that it finished."""
        ...

    def end(self) -> None:
        """Run at the end, also after an error or a signal."""
        ...


class NullCallback:
    """The callback that does nothing, at no cost; a base for callbacks that need some hooks only."""

    def recorder(self, behaviour: str) -> Recorder | None:
        """Return None."""
        return None

    def begin(self) -> None:
        """Do nothing."""

    def step(self, ended: Sequence[Episode]) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


NULL_CALLBACK = NullCallback()


class TransitionCallback(NullCallback):
    """A function that is called as ``function(behaviour, segment)`` for every transition of every agent.

    The segment is described in :meth:`Callback.recorder`.
    """

    def __init__(self, function: Callable[[str, Segment], None]) -> None:
        self._function = function

    @override
    def recorder(self, behaviour: str) -> Recorder:
        """Return a recorder that calls the function."""
        return _FunctionRecorder(behaviour, self._function)


class CallbackList:
    """Several callbacks, run in their order."""

    def __init__(self, *callbacks: Callback) -> None:
        self._callbacks = callbacks

    def recorder(self, behaviour: str) -> Recorder | None:
        """Return a recorder for all callbacks that have one."""
        found = [callback.recorder(behaviour) for callback in self._callbacks]
        recorders = [recorder for recorder in found if recorder is not None]
        return _RecorderList(recorders) if recorders else None

    def begin(self) -> None:
        """Begin all."""
        for callback in self._callbacks:
            callback.begin()

    def step(self, ended: Sequence[Episode]) -> None:
        """Step all."""
        for callback in self._callbacks:
            callback.step(ended)

    def end(self) -> None:
        """End all, even where one of them raises."""
        with ExitStack() as stack:
            for callback in reversed(self._callbacks):
                stack.callback(callback.end)


class _FunctionRecorder:
    def __init__(self, behaviour: str, function: Callable[[str, Segment], None]) -> None:
        self._behaviour, self._function = behaviour, function

    def add(self, segment: Segment) -> None:
        self._function(self._behaviour, segment)

    def close(self, stream: int) -> None:
        """Do nothing: the agent's next transition begins with ``start_step`` 0, which says the same."""


class _RecorderList:
    def __init__(self, recorders: Sequence[Recorder]) -> None:
        self._recorders = recorders

    def add(self, segment: Segment) -> None:
        for recorder in self._recorders:
            recorder.add(segment)

    def close(self, stream: int) -> None:
        for recorder in self._recorders:
            recorder.close(stream)
