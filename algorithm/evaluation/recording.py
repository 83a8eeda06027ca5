"""Recording of evaluation episodes."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from algorithm.agents.roles import Episode
from algorithm.core.data import Segment, StepBatch
from algorithm.core.errors import StorageError
from algorithm.demos.episode import Behaviours, EpisodeWriter, RecordedEpisode
from algorithm.demos.npz import NpzWriter
from algorithm.evaluation.callbacks import EvalCallback


class Recording(EvalCallback):
    """All finished episodes, in the order in which they end.

    Only open episodes are held in memory. Methods raise StorageError, and leave nothing incomplete then.
    Without a finished episode nothing is written.

    writer: of the file
    """

    def __init__(self, writer: EpisodeWriter) -> None:
        self.target, self._writer = writer.target, writer
        self._open: dict[tuple[str, int], list[Segment]] = {}
        self.episodes = 0

    @override
    def recorder(self, behaviour: str) -> _Track | None:
        """Return a recorder that collects the behaviour's transitions."""
        return _Track(behaviour, self._open)

    @override
    def begin(self) -> None:
        """Open the file."""
        with self._storage_errors():
            self._writer.begin()

    @override
    def step(self, ended: Sequence[Episode]) -> None:
        """Write the episodes that ended."""
        with self._storage_errors():
            for episode in ended:
                segments = self._open.pop((episode.behaviour, episode.agent))
                self._writer.write(_recorded(self.episodes, episode, segments))
                self.episodes += 1

    @override
    def end(self) -> None:
        """Complete the file; unfinished episodes are left out."""
        if not self.episodes:
            self._writer.discard()
            return
        with self._storage_errors():
            self._writer.finish()

    @contextlib.contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """Discard the file on an OSError and raise StorageError."""
        try:
            yield
        except OSError as error:
            self._writer.discard()
            self.episodes = 0
            raise StorageError.of(error, what="the recording cannot be written", where=self.target) from error


class KeptRecording(Recording):
    """Recording of some behaviours in an evaluation on the way, which goes on where it cannot be written.

    path: of a .npz, whose folder is made; warn: called then, once
    """

    def __init__(self, path: Path, behaviours: Behaviours, *, warn: Callable[[str], None]) -> None:
        super().__init__(NpzWriter(path))
        self._path, self._behaviours, self._warn = path, behaviours, warn
        self._lost = False

    @override
    def recorder(self, behaviour: str) -> _Track | None:
        """Return a recorder of one of the behaviours."""
        return super().recorder(behaviour) if behaviour in self._behaviours else None

    @override
    def begin(self) -> None:
        """Make the folder and open the file."""
        with self._spared(), self._storage_errors():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            super().begin()

    @override
    def step(self, ended: Sequence[Episode]) -> None:
        """Write the episodes that ended."""
        if self._lost:
            self._open.clear()
            return
        with self._spared():
            super().step([episode for episode in ended if episode.behaviour in self._behaviours])

    @override
    def end(self) -> None:
        """Complete the file."""
        with self._spared():
            super().end()

    @contextlib.contextmanager
    def _spared(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            self._lost = True
            self._warn(f"{error.line} · all else goes on without it")


def kept_recordings(
    folders: Mapping[str, str | None], run: Path, *, warn: Callable[[str], None]
) -> Callable[[int], Sequence[KeptRecording]]:
    """Return the maker of the recordings of the evaluation at a step, ``step_000004000.npz`` and so on.

    folders: behaviour -> ``demonstrations.record``, relative to the folder of the run; None: nothing is kept
    """
    kept: defaultdict[Path, set[str]] = defaultdict(set)
    for name, folder in folders.items():
        if folder is not None:
            kept[run / os.path.expanduser(folder)].add(name)  # noqa: PTH111 - Path's raises for an unknown user
    return lambda step: [
        KeptRecording(folder / f"step_{step:09d}.npz", frozenset(names), warn=warn)
        for folder, names in kept.items()
    ]


def _recorded(number: int, episode: Episode, segments: Sequence[Segment]) -> RecordedEpisode:
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
    """Recorder of the open episodes of one behaviour."""

    def __init__(self, behaviour: str, open_episodes: dict[tuple[str, int], list[Segment]]) -> None:
        self._behaviour, self._open = behaviour, open_episodes

    def add_steps(self, steps: StepBatch) -> None:
        for segment in steps.segments():
            self._open.setdefault((self._behaviour, segment.stream), []).append(segment)

    def close(self, stream: int) -> None:
        self._open.pop((self._behaviour, stream), None)
