"""A process that trains, as its parent controls it, and the messages between them. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

from typing_extensions import override

from algorithm.agents.roles import Contribution, Episode
from algorithm.config.loader import LoadedConfig
from algorithm.core.data import Array
from algorithm.core.seeding import stream_seed
from algorithm.env.pool.child_process import ChildProcess, WorkerLostError
from algorithm.env.pool.worker import isolate

_WAITING = 2  # rollouts that a worker may have been granted: the one under way, and the next


Grant = Mapping[str, Mapping[str, Array]]
"""Permission for one more rollout: behaviour -> its owner's statistics."""


@dataclass(frozen=True)
class Shares:
    """Memory of the weights: its name, and how many numbers of which behaviour it holds."""

    name: str
    sizes: Mapping[str, Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker is made from.

    index:    of ``n`` workers
    loaded:   configuration of the run
    seed:     of all random numbers of the worker
    networks: folder of ``nn.py``
    task:     as the command line names it
    files:    folder of the run
    render:   show the environment
    """

    index: int
    n: int
    loaded: LoadedConfig
    seed: int
    networks: Path
    task: str
    files: Path
    render: bool

    def number(self, agent: int) -> int:
        """Return the id that the worker's agent has in the run, where no other one has it."""
        return agent * self.n + self.index


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a worker has done for a grant.

    steps:    transitions, by behaviour
    episodes: that ended; agents: that are there now
    work:     by behaviour
    lines:    for the console
    restarts, dropped: environments that were restarted, episodes that were dropped
    """

    steps: Mapping[str, int]
    episodes: Sequence[Episode]
    agents: frozenset[tuple[str, int]]
    work: Mapping[str, Contribution]
    lines: Sequence[str] = field(default_factory=list)
    restarts: int = 0
    dropped: int = 0


def run_worker(connection: Connection, output: Path) -> None:
    """Train as the messages of ``connection`` ask for, until it is closed. Output goes to the file."""
    isolate(output)  # first of all: loading torch takes seconds, in which its parent may end
    from algorithm.train.asynchronous.worker import work

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
    def waits_on(self) -> tuple[Connection, int]:
        """What is ready when it has sent a message, or ended."""
        return self._connection, self._process.sentinel

    def grant(self, grant: Grant) -> None:
        """Let it go on, as long as it has not got two rollouts to do already. Raises WorkerLostError."""
        while self._granted < _WAITING:
            self._granted += 1
            self.send(grant)

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
