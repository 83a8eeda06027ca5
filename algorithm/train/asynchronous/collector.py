"""Collection of what other processes have done, which train the same networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait

from algorithm.agents.roles import Contributor, Episode
from algorithm.core.data import State
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows, counted
from algorithm.env.pool.child_process import POLL_S, WorkerLostError
from algorithm.env.pool.env_group import GroupFailure, RestartBudget
from algorithm.env.pool.watchdog import ActiveTime
from algorithm.experience.faults import Faults
from algorithm.train.asynchronous.messages import Grant, Report, Shares
from algorithm.train.asynchronous.process import TrainingProcess
from algorithm.train.asynchronous.shared import SharedWeights


class AsyncCollector:
    """Source of steps that workers have taken and learned from already.

    Each of them may have two rollouts to do, so all pause by themselves while nobody looks after them.

    agents:  by behaviour; they own the statistics, and have the weights as they were after the last step
    timeout: seconds without progress after which a worker counts as hanging; -1 waits for ever
    restarts: number of workers that are replaced at most
    ready:   waits until a worker has made its environment
    watch:   charged with the time
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

    def begin(self) -> SharedWeights:
        """Let the workers begin, with the agents' present weights; return the memory, to be closed."""
        sizes = {name: [len(one) for one in agent.weights()] for name, agent in self._agents.items()}
        self._shared = SharedWeights(sizes, len(self._workers), base=self.steps)
        self._shares = Shares(self._shared.name, sizes)
        for name, agent in self._agents.items():
            self._shared.write(name, agent.weights())
        grant = self._grant()
        for worker in self._workers:
            worker.send(self._shares)
            worker.grant(grant)
        return self._shared

    @property
    def steps(self) -> int:
        """Steps of all workers."""
        return sum(self.behaviour_steps.values())

    @property
    def agents(self) -> frozenset[tuple[str, int]]:
        """(behaviour, id) of every agent of any worker."""
        return frozenset().union(*(worker.agents for worker in self._workers))

    def step(self) -> list[Episode]:
        """Take in what has been done; return the episodes that ended. Waits a moment if there is nothing.

        Raises the error of a worker that cannot go on, and EnvError for one loss too many.
        """
        wait([one for worker in self._workers for one in worker.waits_on], POLL_S)
        self._watch.lap("wait")
        episodes: list[Episode] = []
        for worker in self._workers:
            try:
                episodes += self._look_after(worker)
            except WorkerLostError as loss:
                self._replace(worker, loss)
        for name, agent in self._agents.items():
            self._shared.read(name, agent.weights())
        self._watch.lap("store")
        return episodes

    def _look_after(self, worker: TrainingProcess) -> Sequence[Episode]:
        report = worker.take(self._shared.progress(worker.index), self._active.update(), self._timeout)
        if report is None:
            return ()
        assert isinstance(report, Report)
        for name, work in report.work.items():
            self._agents[name].take_in(work)
            self.behaviour_steps[name] += report.steps[name]
        worker.agents = report.agents
        for line in report.lines:
            self._faults.console.warn(f"{worker.name}: {line}")
        self._faults.of_actors(report.restarts, report.dropped)
        worker.grant(self._grant())
        return report.episodes

    def _grant(self) -> Grant:
        return {name: agent.statistics() for name, agent in self._agents.items()}

    def _replace(self, worker: TrainingProcess, loss: WorkerLostError) -> None:
        failure = GroupFailure(
            envs=(worker.index,),
            culprit=None,
            what=f"{worker.name} {loss.what}",
            why=loss.why,
            trace=loss.output,
        )
        self._budget.survive(failure, "the steps that it has not reported, and its open episode, are lost")
        worker.start()
        self._ready(worker)
        worker.send(self._shares)
        worker.grant(self._grant())

    def truncate(self) -> None:
        """Do nothing: ``reset_on_iteration`` is refused."""

    def state(self) -> State:
        """Return the counts; nothing else goes on."""
        steps = list(self.behaviour_steps.values())
        own = {"steps": steps, "num_envs": len(self._workers), "behaviours": list(self._agents)}
        return State.joined({"own": State(meta=own)})

    def load_state(self, state: State) -> list[str]:
        """Continue the counts of ``state``, which may be of one process; return what is not exact."""
        own = state.part("own").meta
        taken = dict(zip(own["behaviours"], own["steps"], strict=True))
        self.behaviour_steps = {name: taken.get(name, 0) for name in self._agents}
        before, now = counted(own["num_envs"], "environment"), len(self._workers)
        became = "" if own["num_envs"] == now else f"{before} became {now}; "
        return [f"{became}{now} processes never do the same again, and begin new episodes"]

    def metrics(self) -> dict[str, float]:
        """Return nothing: what environments record stays in their processes."""
        return {}

    def rows(self) -> Rows:
        """Return nothing more."""
        return ()
