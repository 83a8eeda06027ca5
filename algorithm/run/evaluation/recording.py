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

from algorithm.core.data import Episode, Segment, StepBatch
from algorithm.core.errors import StorageError
from algorithm.demos.episode import RecordedEpisode
from algorithm.demos.npz import NpzWriter
from algorithm.run.evaluation.callbacks import EvalCallback


class Recording(EvalCallback):
    """Callback that writes finished episodes, in the order in which they end.

    Only open episodes are kept in memory. Without a finished episode nothing is written; after a failure
    no incomplete file is left.

    writer:     writer of the file
    behaviours: behaviours to record; None: all
    on_failure: called once if the file cannot be written; the evaluation goes on. None: raise StorageError
    """

    def __init__(
        self,
        writer: NpzWriter,
        behaviours: frozenset[str] | None = None,
        *,
        on_failure: Callable[[StorageError], None] | None = None,
    ) -> None:
        self.target, self._writer = writer.target, writer
        self._behaviours, self._on_failure = behaviours, on_failure
        self._open: dict[tuple[str, int], list[Segment]] = {}
        self._lost = False
        self.episodes = 0

    @override
    def recorder(self, behaviour: str) -> _Track | None:
        """Return a recorder that collects the behaviour's transitions."""
        recorded = self._behaviours is None or behaviour in self._behaviours
        return _Track(behaviour, self._open) if recorded else None

    @override
    def begin(self) -> None:
        """Open the file; with ``on_failure`` its folder is created."""
        with self._writing():
            if self._on_failure is not None:
                Path(self.target).parent.mkdir(parents=True, exist_ok=True)
            self._writer.begin()

    @override
    def step(self, ended: Sequence[Episode]) -> None:
        """Write the episodes that ended."""
        if self._lost:
            self._open.clear()
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
        """Discard the file if the block raises an OSError."""
        try:
            yield
        except OSError as error:
            self._writer.discard()
            self.episodes, self._lost = 0, True
            failure = StorageError.of(error, what="the recording cannot be written", where=self.target)
            if self._on_failure is None:
                raise failure from error
            self._on_failure(failure)


def kept_recordings(
    folders: Mapping[str, str | None], run: Path, *, warn: Callable[[str], None]
) -> Callable[[int], Sequence[Recording]]:
    """Return a function from a step to the recordings of its evaluation, ``step_000004000.npz`` and so on.

    folders: behaviour -> ``demonstrations.record``, relative to the folder of the run; None: not recorded
    """
    kept: defaultdict[Path, set[str]] = defaultdict(set)
    for name, folder in folders.items():
        if folder is not None:
            kept[run / os.path.expanduser(folder)].add(name)  # noqa: PTH111 - Path's raises for an unknown user

    def on_failure(error: StorageError) -> None:
        warn(f"{error.line} · everything else continues without it")

    return lambda step: [
        Recording(NpzWriter(folder / f"step_{step:09d}.npz"), frozenset(names), on_failure=on_failure)
        for folder, names in kept.items()
    ]


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
