"""Weights on their way: published by the learner, fetched by an actor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ds.checking import AHEAD


class ParameterStore:
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


@dataclass(frozen=True)
class FetchedWeights:
    """version: they are at least so new; chunks: see ``ds.weights``."""

    version: int
    chunks: list[bytes]


class WeightFetcher:
    """Receipts say which version there is; one thread fetches; the actor takes what is newest.

    fetch: the chunks of weights newer than a version; none if there are no newer ones
    """

    def __init__(self, fetch: Callable[[int], list[bytes]]) -> None:
        self._fetch = fetch
        self._changed = threading.Condition()
        self._heard = 0  # what the last receipt spoke of
        self._vain = -1  # was heard of, asked for, and not there
        self._have = 0
        self._unread: FetchedWeights | None = None

    @property
    def version(self) -> int:
        """Of the newest weights that this actor has seen, 0 for none."""
        return self._have

    def heard(self, version: int) -> None:
        """The learner has this version."""
        with self._changed:
            self._heard = version
            self._changed.notify_all()

    def has(self, version: int) -> None:
        """The actor has loaded weights that turned out to be this version."""
        with self._changed:
            self._have = max(self._have, version)

    def anew(self) -> None:
        """Another learner answers: what was not there may be there now."""
        with self._changed:
            self._vain = -1
            self._changed.notify_all()

    def wanted(self, seconds: float) -> bool:
        """Wait, at most so long, until there are newer weights to fetch. Returns whether there are."""
        with self._changed:
            return self._changed.wait_for(self._is_behind, seconds)

    def fetch(self) -> None:
        """Fetch what is newer, if anything is. Only one thread may do so; errors are those of ``fetch``."""
        with self._changed:
            if not self._is_behind():
                return
            version, have = self._heard, self._have
        chunks = self._fetch(have)
        with self._changed:
            if not chunks:
                self._vain = version
                return
            self._have = max(self._have, version)
            self._unread = FetchedWeights(version, chunks)

    def take(self) -> FetchedWeights | None:
        """The newest weights that have not been taken yet."""
        with self._changed:
            unread, self._unread = self._unread, None
            return unread

    def _is_behind(self) -> bool:
        return self._heard > self._have and self._heard != self._vain
