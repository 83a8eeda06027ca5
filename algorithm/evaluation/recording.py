"""Recordings of episodes: one ``.npz`` of plain arrays, described in ``docs/evaluation.md``."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from algorithm.agents.roles import Episode
from algorithm.core.data import Segment, StepBatch
from algorithm.core.errors import StorageError
from algorithm.core.system.files import replace
from algorithm.evaluation.callbacks import EvalCallback


class Recording(EvalCallback):
    """Observations, actions, rewards and carries of all finished episodes, in the order in which they end.

    Only open episodes are held in memory. The file appears at the end, complete, if an episode was finished,
    and replaces one of that name. Every method may raise StorageError, which leaves no incomplete file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._file: zipfile.ZipFile | None = None
        self._open: dict[tuple[str, int], list[Segment]] = {}
        self._episodes: list[Episode] = []

    @property
    def episodes(self) -> int:
        """Number of episodes written so far."""
        return len(self._episodes)

    @override
    def recorder(self, behaviour: str) -> _Track:
        """Return a recorder that collects the behaviour's transitions."""
        return _Track(behaviour, self._open)

    @override
    def begin(self) -> None:
        """Open the file: a path that cannot be written to fails before anything is played."""
        if self.path.is_dir():
            raise StorageError(
                "the recording cannot be written", where=self.path, why="it is a folder", fix="name a file"
            )
        with self._storage_errors():
            self._file = zipfile.ZipFile(self._draft, "w", zipfile.ZIP_DEFLATED, compresslevel=1)

    @override
    def step(self, ended: Sequence[Episode]) -> None:
        """Write the episodes that ended."""
        with self._storage_errors():
            for episode in ended:
                self._write(episode)

    @override
    def end(self) -> None:
        """Write the list of episodes and give the file its name; unfinished episodes are left out."""
        if self._file is None:
            return
        if not self._episodes:
            self._discard()
            return
        episodes = self._episodes
        with self._storage_errors():
            self._array("behaviour", np.array([e.behaviour for e in episodes], np.str_))
            self._array("agent", np.array([e.agent for e in episodes], np.int64))
            self._array("length", np.array([e.length for e in episodes], np.int64))
            self._array("total", np.array([e.total for e in episodes], np.float64))
            self._file.close()
            replace(self._draft, self.path)
        self._file = None

    def _write(self, episode: Episode) -> None:
        segments = self._open.pop((episode.behaviour, episode.agent))
        number, last = len(self._episodes), segments[-1]
        for name in last.obs:
            self._array(f"{number}/obs/{name}", [*(s.obs[name][0] for s in segments), last.obs[name][1]])
        for field in ("action_mask", "carry"):
            seen = [*(getattr(s, field)[0] for s in segments), getattr(last, field)[1]]
            self._array(f"{number}/{field}", seen)
        for field in ("action", "z", "behaviour_logp", "reward", "terminated", "truncated"):
            self._array(f"{number}/{field}", [getattr(s, field)[0] for s in segments])
        self._episodes.append(episode)

    def _array(self, name: str, value: ArrayLike) -> None:
        assert self._file is not None, "begin comes first"
        with self._file.open(f"{name}.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array(member, np.asanyarray(value), allow_pickle=False)

    @contextlib.contextmanager
    def _storage_errors(self) -> Iterator[None]:
        """Discard the file on an OSError and raise StorageError."""
        try:
            yield
        except OSError as error:
            self._discard()
            raise StorageError.of(error, what="the recording cannot be written", where=self.path) from error

    def _discard(self) -> None:
        file, self._file = self._file, None
        with contextlib.suppress(OSError):  # the disk may be full
            if file is not None:
                file.close()
        with contextlib.suppress(OSError):
            self._draft.unlink()


class _Track:
    """Recorder of the open episodes of one behaviour."""

    def __init__(self, behaviour: str, open_episodes: dict[tuple[str, int], list[Segment]]) -> None:
        self._behaviour, self._open = behaviour, open_episodes

    def add_steps(self, steps: StepBatch) -> None:
        for segment in steps.segments():
            self._open.setdefault((self._behaviour, segment.stream), []).append(segment)

    def close(self, stream: int) -> None:
        self._open.pop((self._behaviour, stream), None)
