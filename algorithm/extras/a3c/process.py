"""A process that trains, as its parent controls it, and its first lines. Imports no torch."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from typing_extensions import override

from algorithm.core.seeding import stream_seed
from algorithm.env.pool.child_process import ChildProcess, WorkerLostError
from algorithm.env.pool.worker import isolate
from algorithm.extras.a3c.messages import GRANT, Job

_WAITING = 2  # rollouts that a worker may have been granted: the one under way, and the next


def run_worker(connection: Connection, output: Path) -> None:
    """Train as the messages of ``connection`` ask for, until it is closed. Output goes to the file."""
    isolate(output)  # first of all: loading torch takes seconds, in which its parent may end
    from algorithm.extras.a3c.worker import work

    work(connection)


class TrainingProcess(ChildProcess):
    """A process with an environment and agents, which train networks that it shares with others.

    job:    what it is made from, with the run's own seed
    since:  step that the run begins from in this process, for other random numbers than before
    agents: of its environment, by behaviour and the id that they have in the run
    """

    agents: frozenset[tuple[str, int]]

    def __init__(self, job: Job, since: int, output: Path) -> None:
        self._job, self._since, self._starts = job, since, 0
        super().__init__(run_worker, (), output, alone="num_processes: 1")

    @property
    def index(self) -> int:
        """Number of the worker."""
        return self._job.index

    @override
    def start(self) -> None:
        """Start a process with random numbers that none before had."""
        super().start()
        seed = stream_seed(self._job.seed, "worker", self.index, self._starts, self._since)
        self._starts += 1
        self._granted = 0
        self.agents = frozenset()
        self._progress, self._moved_at = -1, 0.0
        with suppress(WorkerLostError):  # as its first answer will show
            self.send(replace(self._job, seed=seed))

    @property
    def waits_on(self) -> tuple[Any, int]:
        """Objects of :func:`multiprocessing.connection.wait`: ready at a message, and at its end."""
        return self._connection, self._process.sentinel

    def grant(self) -> None:
        """Let it go on, as long as it has not got two rollouts to do already. Raises WorkerLostError."""
        while self._granted < _WAITING:
            self._granted += 1
            self.send(GRANT)

    def take(self, progress: int, now: float, timeout: float) -> object:
        """Return its next message, None if there is none yet. Raises WorkerLostError.

        progress: a number that changes as it gets on; now: seconds; timeout: how long it may stay the same
        """
        if self._arrived(0.0):
            self._granted -= 1
            return self.checked(self._received())
        if progress != self._progress:
            self._progress = progress
            self._moved_at = now
        elif 0 < timeout < now - self._moved_at:
            raise self.hangs(timeout)
        return None

    def close(self) -> None:
        """Let it end: nothing more will be asked."""
        self._connection.close()
