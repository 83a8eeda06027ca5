"""Why an actor's threads end: the training has finished, one of them failed, or the actor leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Ending:
    """Seen by every thread of an actor.

    halted:   nobody sends, beats or fetches any more
    finished: the learner said that the training has ended; the actor ends with exit code 0
    """

    def __init__(self) -> None:
        self.halted, self.finished = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None

    def finish(self) -> None:
        """The training has ended."""
        self.finished.set()
        self.halted.set()

    def fail(self, error: BaseException) -> None:
        """A thread cannot go on; the first reason counts."""
        with self._lock:
            self._failure = self._failure or error
        self.halted.set()

    def check(self) -> None:
        """Raise what made a thread fail. For the main thread, whenever it comes along."""
        if self._failure is not None:
            raise self._failure

    def start(self, name: str, body: Callable[[], None]) -> threading.Thread:
        """A thread that ends with the process; what it raises is raised by :meth:`check`."""

        def guarded() -> None:
            try:
                body()
            except Exception as error:  # whatever it is, it must not end unseen in a thread
                self.fail(error)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread
