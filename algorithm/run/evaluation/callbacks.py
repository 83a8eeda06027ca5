"""Callbacks of evaluation episodes: the base, progress lines, a recording, several in order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from typing_extensions import override

from algorithm.agents.roles import Recorder
from algorithm.core.data import Episode, Segment, StepBatch
from algorithm.core.errors import StorageError
from algorithm.core.wording import counted
from algorithm.demos.episode import RecordedEpisode
from algorithm.demos.npz import NpzWriter


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


class Recording(EvalCallback):
    """Callback that writes finished episodes, in the order in which they end.

    Only open episodes are kept in memory. Without a finished episode nothing is written; after a failure
    no incomplete file is left.

    writer: writer of the file
    Raises StorageError if the file cannot be written.
    """

    def __init__(self, writer: NpzWriter) -> None:
        self.target, self._writer = writer.target, writer
        self._open: dict[tuple[str, int], list[Segment]] = {}
        self.episodes = 0

    @override
    def recorder(self, behaviour: str) -> _Track:
        """Return a recorder that collects the behaviour's transitions."""
        return _Track(behaviour, self._open)

    @override
    def begin(self) -> None:
        """Open the file."""
        with self._writing():
            self._writer.begin()

    @override
    def step(self, ended: Sequence[Episode]) -> None:
        """Write the episodes that ended."""
        with self._writing():
            for episode in ended:
                if segments := self._open.pop((episode.behaviour, episode.agent), None):
                    self._writer.write(_recorded(self.episodes, episode, segments))
                    self.episodes += 1

    @override
    def end(self) -> None:
        """Complete the file; unfinished episodes are left out."""
        if not self.episodes:
            self._writer.discard()
            return
        with self._writing():
            self._writer.finish()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Discard the file and raise StorageError if the block raises an OSError."""
        try:
            yield
        except OSError as error:
            self._writer.discard()
            self.episodes = 0
            raise StorageError.of(error, what="the recording cannot be written", where=self.target) from error


def _recorded(number: int, episode: Episode, segments: Sequence[Segment]) -> RecordedEpisode:
    """Return an episode for a file, from its transitions."""
    last = segments[-1]
    seen: dict[str, Any] = {
        name: np.stack([*(getattr(s, name)[0] for s in segments), getattr(last, name)[1]])
        for name in ("action_mask", "carry")
    }
    done: dict[str, Any] = {
        name: np.stack([getattr(s, name)[0] for s in segments])
        for name in ("action", "z", "behaviour_logp", "reward", "terminated", "truncated")
    }
    return RecordedEpisode(
        number=number,
        behaviour=episode.behaviour,
        agent=episode.agent,
        obs={name: np.stack([*(s.obs[name][0] for s in segments), last.obs[name][1]]) for name in last.obs},
        **seen,
        **done,
    )


class _Track:
    """Recorder that collects the open episodes of one behaviour."""

    def __init__(self, behaviour: str, open_episodes: dict[tuple[str, int], list[Segment]]) -> None:
        self._behaviour, self._open = behaviour, open_episodes

    def add_steps(self, steps: StepBatch) -> None:
        for segment in steps.segments():
            self._open.setdefault((self._behaviour, segment.stream), []).append(segment)

    def close(self, stream: int) -> None:
        self._open.pop((self._behaviour, stream), None)
