"""The learner's newest weights, fetched as soon as a receipt speaks of newer ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Weights:
    """version: they are at least so new; chunks: see ``ds.weights``."""

    version: int
    chunks: list[bytes]


class Newest:
    """Receipts say which version there is; one thread fetches; the actor takes what is newest.

    fetch: the chunks of weights newer than a version; none if there are no newer ones
    """

    def __init__(self, fetch: Callable[[int], list[bytes]]) -> None:
        self._fetch = fetch
        self._changed = threading.Condition()
        self._heard = 0  # what the last receipt spoke of
        self._vain = -1  # was heard of, asked for, and not there
        self._have = 0
        self._unread: Weights | None = None

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
            self._unread = Weights(version, chunks)

    def take(self) -> Weights | None:
        """The newest weights that have not been taken yet."""
        with self._changed:
            unread, self._unread = self._unread, None
            return unread

    def _is_behind(self) -> bool:
        return self._heard > self._have and self._heard != self._vain
