"""Recording of evaluation episodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from algorithm.core.data import Episode, Segment, StepBatch
from algorithm.core.errors import StorageError
from algorithm.demos.episode import RecordedEpisode
from algorithm.demos.npz import NpzWriter
from algorithm.run.evaluation.callbacks import EvalCallback


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
