"""A worker process as its parent controls it, and the function that it runs. Imports no torch."""

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

_MAX_GRANTS = 2  # rollouts that a worker may have ahead: the one under way, and the next


def run_worker(connection: Connection, output: Path) -> None:
    """Obey the messages of ``connection`` until it is closed. Output goes to the file."""
    isolate(output)  # first of all: loading torch takes seconds, in which its parent may end
    from algorithm.extras.a3c.worker import work

    work(connection)


class TrainingProcess(ChildProcess):
    """A worker process, as its parent sees it: it trains shared networks in an environment of its own.

    job:    its inputs, with the run's own seed
    since:  step at which the run is started or resumed, so that a resumed run draws other random numbers
    agents: (behaviour, id in the run) of each agent of its environment
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
        """Start the process, with other random numbers than any before it."""
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
        """Arguments of :func:`multiprocessing.connection.wait`: ready at a message, and at the end."""
        return self._connection, self._process.sentinel

    def grant(self) -> None:
        """Grant rollouts until the worker has two ahead. Raises WorkerLostError."""
        while self._granted < _MAX_GRANTS:
            self._granted += 1
            self.send(GRANT)

    def take(self, progress: int, now: float, timeout: float) -> object:
        """Return the worker's next message, None if there is none yet. Raises WorkerLostError.

        progress: a number that changes while the worker makes progress
        now:      time in seconds
        timeout:  seconds without progress after which the worker counts as hanging; at most 0: never
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
        """Close the connection, so that the process ends by itself."""
        self._connection.close()
