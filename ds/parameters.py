"""Weights on their way: published by the learner, fetched by an actor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ds.checking import AHEAD

_UNSAVED = 1_000_000
"""Versions that a learner may have published between its last checkpoint and the moment it was killed."""


class ParameterStore:
    """Published weights and flags of a learner; a reader gets one whole version or none.

    ``newest``:     version of the newest weights, 0 before the first
    ``warming_up``: behaviour -> its agents act at random
    ``finished``:   the training has ended, and so shall the actors
    """

    def __init__(self, warming_up: Mapping[str, bool]) -> None:
        self._lock = threading.Lock()
        self._weights: tuple[int, tuple[bytes, ...]] = (0, ())
        self._seen = self._resumed = 0
        self._first = 1  # version of this learner's first weights
        self.warming_up: Mapping[str, bool] = dict(warming_up)
        self.finished = False

    @property
    def newest(self) -> int:
        """Version of the newest weights, 0 before the first."""
        return self._weights[0]

    @property
    def next_version(self) -> int:
        """Version of the next weights: above all that were published, here or before, or seen by an actor."""
        return max(self.newest + 1, self._seen + 1, self._first)

    @property
    def max_version(self) -> int:
        """Highest version that an actor may have, of this learner or of one before it."""
        return max(self.next_version - 1, self._resumed + AHEAD)

    def resume(self, version: int) -> None:
        """Set the newest version at the time of the restored state.

        The learner that was killed may have published further ones. Those of this one are above all of them.
        """
        with self._lock:
            self._resumed = version
            self._first = version + _UNSAVED + 1

    def seen(self, version: int) -> None:
        """Note a version that an actor has from an earlier learner."""
        with self._lock:
            self._seen = max(self._seen, version)
            if version > self.newest:
                self._first = max(self._first, version + 1)

    def lag(self, version: int) -> int:
        """Return how many versions weights are behind the newest; 1 or more for those of a learner before."""
        if version >= self._first:
            return max(0, self.newest - version)
        return max(1, self.newest - max(self._first - 1, version))

    def publish(self, version: int, chunks: Sequence[bytes]) -> None:
        """Replace the newest weights. ValueError for a version that is not newer."""
        if version <= self.newest:
            raise ValueError(f"weights of version {version} follow those of version {self.newest}")
        self._weights = (version, tuple(chunks))

    def set_warming_up(self, warming_up: Mapping[str, bool]) -> None:
        """Set which behaviours act at random from now on."""
        self.warming_up = dict(warming_up)

    def finish(self) -> None:
        """Note that the training has ended."""
        self.finished = True

    def weights(self, than: int) -> tuple[bytes, ...]:
        """Return the newest weights in pieces if newer than version ``than``, else nothing."""
        version, chunks = self._weights
        return chunks if version > than else ()


@dataclass(frozen=True)
class FetchedWeights:
    """Weights as received. version: a lower bound of theirs; chunks: see ``ds.weights``."""

    version: int
    chunks: list[bytes]


class WeightFetcher:
    """Fetcher of the newest weights that receipts have announced; one thread fetches.

    fetch: the chunks of weights newer than a version; none if there are no newer ones
    """

    def __init__(self, fetch: Callable[[int], list[bytes]]) -> None:
        self._fetch = fetch
        self._changed = threading.Condition()
        self._announced = 0  # version in the last receipt
        self._missing = -1  # announced, requested, and not there
        self._have = 0
        self._unread: FetchedWeights | None = None

    @property
    def version(self) -> int:
        """Version of the newest weights that this actor has seen, 0 for none."""
        return self._have

    def announce(self, version: int) -> None:
        """Note the version that a receipt announces."""
        with self._changed:
            self._announced = version
            self._changed.notify_all()

    def mark_loaded(self, version: int) -> None:
        """Note the version of loaded weights."""
        with self._changed:
            self._have = max(self._have, version)

    def retry_missing(self) -> None:
        """Try again what an earlier learner did not have."""
        with self._changed:
            self._missing = -1
            self._changed.notify_all()

    def wait_until_behind(self, seconds: float) -> bool:
        """Wait, at most so long, until newer weights can be fetched. Return whether they can."""
        with self._changed:
            return self._changed.wait_for(self._is_behind, seconds)

    def fetch(self) -> None:
        """Fetch newer weights if there are any. Only one thread may do so; errors are those of ``fetch``."""
        with self._changed:
            if not self._is_behind():
                return
            version, have = self._announced, self._have
        chunks = self._fetch(have)
        with self._changed:
            if not chunks:
                self._missing = version
                return
            self._have = max(self._have, version)
            self._unread = FetchedWeights(version, chunks)

    def take(self) -> FetchedWeights | None:
        """Return the newest weights that have not been taken yet."""
        with self._changed:
            unread, self._unread = self._unread, None
            return unread

    def _is_behind(self) -> bool:
        return self._announced > self._have and self._announced != self._missing
