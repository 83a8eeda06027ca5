"""What the learner tells all of its actors: written by its main thread, read by the one that answers."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from ds.checking import AHEAD


class Board:
    """Each method takes no time worth mentioning; a reader sees all of what was published, or nothing of it.

    ``newest``:     version of the newest weights, 0 before the first
    ``warming_up``: behaviour -> its agents act at random
    ``finished``:   the training has ended, and so shall the actors
    """

    def __init__(self, warming_up: Mapping[str, bool]) -> None:
        self._lock = threading.Lock()
        self._weights: tuple[int, tuple[bytes, ...]] = (0, ())
        self._seen = self._resumed = 0
        self.warming_up: Mapping[str, bool] = dict(warming_up)
        self.finished = False

    @property
    def newest(self) -> int:
        """Version of the newest weights, 0 before the first."""
        return self._weights[0]

    @property
    def next_version(self) -> int:
        """What the next weights are to be called: more than was ever published here or seen by an actor."""
        return max(self.newest, self._seen) + 1

    @property
    def furthest(self) -> int:
        """The highest version that an actor may have: of this learner, or of one that had come further."""
        return max(self.next_version - 1, self._resumed + AHEAD)

    def resume(self, version: int) -> None:
        """The state that this learner goes on from was taken when this was the newest version."""
        with self._lock:
            self._resumed = version
            self._seen = max(self._seen, version)

    def seen(self, version: int) -> None:
        """An actor has these weights from a learner before this one, which had come further."""
        with self._lock:
            self._seen = max(self._seen, version)

    def publish(self, version: int, chunks: Sequence[bytes]) -> None:
        """These are the newest weights. ValueError if there have been newer ones."""
        if version <= self.newest:
            raise ValueError(f"weights of version {version} follow those of version {self.newest}")
        self._weights = (version, tuple(chunks))

    def set_warming_up(self, warming_up: Mapping[str, bool]) -> None:
        """Which behaviours act at random from now on."""
        self.warming_up = dict(warming_up)

    def finish(self) -> None:
        """The training has ended."""
        self.finished = True

    def weights(self, than: int) -> tuple[bytes, ...]:
        """The newest weights in pieces if they are newer than version ``than``, else nothing."""
        version, chunks = self._weights
        return chunks if version > than else ()
