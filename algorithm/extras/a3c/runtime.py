"""Training of the same networks by several processes, each with an environment of its own."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import cast

from typing_extensions import override

from algorithm.agents.base import Agent
from algorithm.agents.roles import Collector, Contributor
from algorithm.core.data import Episode, State
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows, counted
from algorithm.env.base import VecEnv
from algorithm.env.parameters.curricula import refuse_lessons
from algorithm.env.pool.child_process import POLL_S, WorkerLostError
from algorithm.env.pool.env_group import GroupFailure, RestartBudget
from algorithm.env.pool.watchdog import CLOSE_TIMEOUT, ActiveTime
from algorithm.env.request import ignore_text
from algorithm.extras.a3c.messages import Job, Report
from algorithm.extras.a3c.process import TrainingProcess
from algorithm.extras.a3c.shared import SharedWeights
from algorithm.replay.buffer import ReplayBuffer
from algorithm.run.experience.faults import Faults
from algorithm.run.runtime import EnvInfo, Runtime, num_processes
from algorithm.run.training_context import TrainingContext


class AsyncRuntime(Runtime):
    """Runtime of workers that act and learn, and share their networks without a lock.

    Raises UsageError for another device than the CPU, and EnvError if no environment can be made.
    """

    remote = False

    @override
    def __init__(self, context: TrainingContext, eval_env: VecEnv | None) -> None:
        if context.device.partition(":")[0] not in ("auto", "cpu"):
            raise UsageError(
                "several processes cannot train one network on a GPU",
                where="--device",
                why="they share its weights in the memory of the machine",
                fix="--device cpu, or set num_processes: 1",
            )
        if context.env_object:
            context.env_object.train.check(1, num_processes(context.loaded), ())
        refuse_lessons(context.loaded.config.parameters, "num_processes above 1", "num_processes: 1")
        self._loaded, self._faults, self._stack = context.loaded, context.faults, context.stack
        self._base, n = self._loaded.config.base_config, num_processes(self._loaded)
        self.make_replay = ReplayBuffer
        run = context.inputs.run
        (folder := run.path / "workers").mkdir(exist_ok=True)
        self._workers: list[TrainingProcess] = []
        atexit.register(self._close)  # before the interpreter waits for its children
        self._stack.callback(self._close)
        for index in range(n):
            job = Job(
                index=index,
                n=n,
                loaded=self._loaded,
                seed=self._loaded.seed,
                networks=context.networks,
                task=run.argument,
                files=run.path,
                render=context.inputs.render and index == 0,
                source=context.env_object.train if context.env_object else None,
            )
            self._workers.append(TrainingProcess(job, context.since, folder / f"worker_{index}.log"))
        first, *others = [self._wait(worker, self._faults.waiting) for worker in self._workers]
        self.env = EnvInfo(first.specs, first.time_limit, f"{n} in as many processes, which learn")
        for worker, info in zip(self._workers[1:], others, strict=True):
            self._check(worker, info)
        self._faults.console.message(
            f"{n} processes train the same networks without waiting for each other: not reproducible"
        )

    def _wait(self, worker: TrainingProcess, waiting: Callable[[str], None]) -> EnvInfo:
        """Wait until a worker has made its environment; return the spaces."""
        return cast(EnvInfo, worker.first_answer("its environment", self._base.env_timeout, waiting))

    def _check(self, worker: TrainingProcess, info: EnvInfo) -> None:
        """Raise EnvError if a worker's environment has other spaces than the first one's."""
        if info.specs != self.env.specs:
            raise EnvError(
                "the environment has other spaces in another process",
                where=worker.name,
                why=f"they are {_describe(info)}, and {_describe(self.env)} in worker_0",
                fix="the environment must have the same spaces at every start",
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
        self._collector.begin()

    @override
    def end(self, stopped: Callable[[], bool]) -> None:
        """Do nothing: the processes end when the run is closed."""

    def _close(self) -> None:
        """Close the workers; kill those that have not ended after ten seconds."""
        atexit.unregister(self._close)
        for worker in self._workers:
            worker.close()
        deadline = time.monotonic() + CLOSE_TIMEOUT
        for worker in self._workers:
            worker.end(deadline)
        self._workers.clear()


class AsyncCollector:
    """Collector of what workers report: steps that they have taken and learned from already.

    A worker has at most two rollouts ahead, so all pause by themselves while :meth:`step` is not called.

    agents:  by behaviour; they hold the statistics, and the weights as of the last step
    timeout: seconds without progress after which a worker counts as hanging; -1 waits for ever
    restarts: how often a worker is replaced, at most
    ready:   function that waits until a worker has made its environment
    watch:   measures the time
    """

    def __init__(
        self,
        workers: Sequence[TrainingProcess],
        agents: Mapping[str, Contributor],
        faults: Faults,
        *,
        timeout: float,
        restarts: int,
        ready: Callable[[TrainingProcess], object],
        watch: Stopwatch,
    ) -> None:
        self._workers, self._agents, self._faults = workers, agents, faults
        self._timeout, self._ready, self._watch = timeout, ready, watch
        self._budget = RestartBudget(restarts, faults)
        self._active = ActiveTime(POLL_S)
        self.behaviour_steps = dict.fromkeys(agents, 0)

    def begin(self) -> None:
        """Share the agents' weights and start all workers."""
        self._shared = SharedWeights.of(self._agents, len(self._workers), self.steps)
        for worker in self._workers:
            self._start_worker(worker)

    def _start_worker(self, worker: TrainingProcess) -> None:
        """Send the shared memory and the first grants to a worker."""
        with suppress(WorkerLostError):  # the next step reports that
            worker.send(self._shared)
            worker.grant()

    @property
    def steps(self) -> int:
        """Steps of all workers."""
        return sum(self.behaviour_steps.values())

    @property
    def agents(self) -> frozenset[tuple[str, int]]:
        """(behaviour, id) of every agent of any worker."""
        return frozenset().union(*(worker.agents for worker in self._workers))

    def step(self) -> list[Episode]:
        """Take the workers' reports; return the episodes that ended. Waits a moment if there is no report.

        Raises the error of a worker that cannot go on, and EnvError for one loss too many.
        """
        wait([source for worker in self._workers for source in worker.waits_on], POLL_S)
        self._watch.lap("wait")
        episodes: list[Episode] = []
        for worker in self._workers:
            try:
                episodes += self._take_report(worker)
            except WorkerLostError as loss:
                self._replace(worker, loss)
        for name, agent in self._agents.items():
            self._shared.read(name, agent.weights())
        self._watch.lap("store")
        return episodes

    def _take_report(self, worker: TrainingProcess) -> Sequence[Episode]:
        """Take a worker's next report, if it has arrived, and grant more; return the episodes that ended."""
        report = worker.take(self._shared.progress(worker.index), self._active.update(), self._timeout)
        if report is None:
            return ()
        assert isinstance(report, Report)
        for name, work in report.work.items():
            self._agents[name].take_in(work)
            self._shared.statistics[name].copy_(self._agents[name].statistics())
            self.behaviour_steps[name] += report.steps[name]
        worker.agents = report.agents
        for line in report.lines:
            self._faults.console.warn(f"{worker.name}: {line}")
        self._faults.add_actor_counts(report.restarts, report.dropped)
        worker.grant()
        return report.episodes

    def _replace(self, worker: TrainingProcess, loss: WorkerLostError) -> None:
        """Start a lost worker again. Raises EnvError if there were too many losses."""
        failure = GroupFailure(
            envs=(worker.index,),
            culprit=None,
            what=f"{worker.name} {loss.what}",
            why=loss.why,
            trace=loss.output,
        )
        self._budget.survive(failure, "the steps that it has not reported, and its open episode, are lost")
        worker.start()
        try:
            self._ready(worker)
        except EnvError as error:
            if not isinstance(error.__cause__, WorkerLostError):
                raise
            self._replace(worker, error.__cause__)
        else:
            self._start_worker(worker)
        self._watch.lap("wait")

    def truncate(self) -> None:
        """Do nothing: ``reset_on_iteration`` is refused."""

    def renew_parameters(self, lessons: Mapping[str, str], *, reset: bool = False) -> bool:
        """Return False: nothing is reset, since curricula are refused."""
        return False

    def state(self) -> State:
        """Return the counts of steps; nothing else is continued by a resume."""
        steps = list(self.behaviour_steps.values())
        counts = {"steps": steps, "num_envs": len(self._workers), "behaviours": list(self._agents)}
        return State.joined({"own": State(meta=counts)})

    def load_state(self, state: State) -> list[str]:
        """Continue the counts of ``state``, which may be of one process; return notes on what is inexact."""
        saved = state.part("own").meta
        taken = dict(zip(saved["behaviours"], saved["steps"], strict=True))
        self.behaviour_steps = {name: taken.get(name, 0) for name in self._agents}
        before, now = counted(saved["num_envs"], "environment"), len(self._workers)
        became = "" if saved["num_envs"] == now else f"{before} became {now}; "
        return [f"{became}{now} processes are not reproducible, and start new episodes"]

    def must_pause(self) -> bool:
        """Return False: each worker learns between its own actions."""
        return False

    def metrics(self) -> dict[str, float]:
        """Return no metrics: environments are in other processes, and so is what they record."""
        return {}

    def rows(self) -> Rows:
        """Return no rows for the summary."""
        return ()


def _describe(env: EnvInfo) -> str:
    return " · ".join(f"{name}: {spec}" for name, spec in env.specs.items())
