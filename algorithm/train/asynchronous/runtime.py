"""Training in several processes, each with an environment, that add their steps to the same networks."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from typing_extensions import override

from algorithm.agents.base import Agent
from algorithm.agents.registry import family
from algorithm.agents.roles import Collector, Contributor
from algorithm.config.loader import LoadedConfig
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.system.processes import start_resource_tracker
from algorithm.core.timing import Stopwatch
from algorithm.env.base import VecEnv
from algorithm.env.pool.child_process import ignore_text
from algorithm.env.pool.watchdog import CLOSE_TIMEOUT
from algorithm.replay.buffer import ReplayBuffer
from algorithm.runs.rundir import RunDir
from algorithm.train.assembly import Assembly
from algorithm.train.asynchronous.collector import AsyncCollector
from algorithm.train.asynchronous.messages import Job
from algorithm.train.asynchronous.process import TrainingProcess
from algorithm.train.runtime import EnvInfo, Runtime


def num_processes(loaded: LoadedConfig) -> int:
    """Return the number of processes that train. Raises UsageError where behaviours have several numbers."""
    found = {family(one).processes(one) for one in (loaded.config, *loaded.behaviours.values())}
    if len(found) > 1:
        raise UsageError(
            "behaviours of one environment are trained by different numbers of processes",
            where=f"{loaded.source}: ma_config",
            why=f"they are {' and '.join(map(str, sorted(found)))}",
            fix="give all behaviours the same algorithm and num_processes",
        )
    return found.pop()


class AsyncRuntime(Runtime):
    """Runtime of workers that act and learn, and share their networks without a lock.

    Raises UsageError for another device than the CPU, and EnvError if no environment can be made.
    """

    remote = False

    @override
    def __init__(
        self, assembly: Assembly, run: RunDir, eval_env: VecEnv | None, *, networks: Path, render: bool
    ) -> None:
        if assembly.device.type != "cpu":
            raise UsageError(
                "several processes cannot train one network on a GPU",
                where="--device",
                why="they share its weights in the memory of the machine",
                fix="--device cpu, or set num_processes: 1",
            )
        self._loaded, self._faults, self._stack = assembly.loaded, assembly.faults, assembly.stack
        self._base, n = self._loaded.config.base_config, num_processes(self._loaded)
        self.make_replay = ReplayBuffer
        folder = run.path / "workers"
        folder.mkdir(exist_ok=True)
        self._workers: list[TrainingProcess] = []
        start_resource_tracker()
        atexit.register(self._close)  # before the interpreter waits for its children
        self._stack.callback(self._close)
        for index in range(n):
            job = Job(
                index=index,
                n=n,
                loaded=self._loaded,
                seed=self._loaded.seed,
                networks=networks,
                task=run.argument,
                files=run.path,
                render=render and index == 0,
            )
            self._workers.append(TrainingProcess(job, assembly.since, folder / f"worker_{index}.log"))
        first, *others = [self._wait(worker, self._faults.waiting) for worker in self._workers]
        self.env = EnvInfo(first.specs, first.time_limit, f"{n} in as many processes, which learn")
        for worker, info in zip(self._workers[1:], others, strict=True):
            self._check(worker, info)
        self._faults.console.message(
            f"{n} processes train the same networks without waiting for each other: not reproducible"
        )

    def _wait(self, worker: TrainingProcess, waiting: Callable[[str], None]) -> EnvInfo:
        return cast(EnvInfo, worker.first_answer("its environment", self._base.env_timeout, waiting))

    def _check(self, worker: TrainingProcess, info: EnvInfo) -> None:
        if info.specs != self.env.specs:
            raise EnvError(
                "the environment has other spaces in another process",
                where=worker.name,
                why=f"they are {info.specs}, and {self.env.specs} in worker_0",
                fix="every start of the environment has to bring the same spaces",
            )

    @override
    def make_collector(self, agents: Mapping[str, Agent], watch: Stopwatch) -> Collector:
        self._collector = AsyncCollector(
            self._workers,
            cast("Mapping[str, Contributor]", agents),
            self._faults,
            timeout=self._base.env_timeout,
            restarts=self._base.env_restarts,
            ready=lambda worker: self._check(worker, self._wait(worker, ignore_text)),
            watch=watch,
        )
        return self._collector

    @override
    def begin(self) -> None:
        self._stack.callback(self._collector.begin().close)

    @override
    def end(self, stopped: Callable[[], bool]) -> None:
        pass

    def _close(self) -> None:
        """Let the processes end; after ten seconds kill those that did not."""
        atexit.unregister(self._close)
        for worker in self._workers:
            worker.close()
        deadline = time.monotonic() + CLOSE_TIMEOUT
        for worker in self._workers:
            worker.end(deadline)
        self._workers.clear()
