"""The main program of a worker process, which trains shared networks in an environment of its own."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import cast

from typing_extensions import override

from algorithm.agents.base import Agent
from algorithm.agents.divergence import diverged
from algorithm.agents.roles import Contributor
from algorithm.app.console.base import Tee
from algorithm.core.data import Episode
from algorithm.core.errors import COMMON_BLOCK, UserError
from algorithm.core.timing import Stopwatch
from algorithm.env.objects import EnvObject
from algorithm.env.pool.process_exit import exit_process
from algorithm.env.pool.worker import WorkerRefusal
from algorithm.extras.a3c.messages import GRANT, Job, Report
from algorithm.extras.a3c.shared import SharedWeights
from algorithm.nn.process import own_modes, set_up_process
from algorithm.run.context import RunContext
from algorithm.run.experience.faults import Faults
from algorithm.run.runtime import EnvInfo, local_collector
from algorithm.run.state import seed_globally


@own_modes()
def work(connection: Connection) -> None:
    """Receive a Job, send an EnvInfo, receive SharedWeights; then learn: send a Report for each GRANT.

    A UserError is sent as the last answer. The process ends after that, or when the connection is closed.
    """
    logging.basicConfig(level=logging.INFO)  # traces of what environments survive
    with ExitStack() as stack:
        try:
            worker = Worker(connection.recv(), stack)
            connection.send(worker.env)
            worker.begin(connection.recv())
            while connection.recv() == GRANT:
                connection.send(worker.rollout())
        except UserError as error:
            connection.send(WorkerRefusal(error, "".join(traceback.format_exception(error))))
        except (EOFError, ConnectionError):  # the run ends
            pass
    exit_process(0)


class Worker:
    """An environment, and agents that learn in it and share their weights with other processes.

    stack: closes the environment
    """

    def __init__(self, job: Job, stack: ExitStack) -> None:
        loaded = job.loaded.resolved(COMMON_BLOCK, lambda _: {"seed": job.seed})
        # No timeout here: the parent kills a worker that hangs.
        loaded = loaded.resolved("base_config", lambda _: {"env_timeout": -1})
        set_up_process(loaded.config.run.threads)
        seed_globally(loaded.seed)
        self._job, self._base = job, loaded.config.base_config
        self._console = Relay()
        self._faults = Faults(self._console)
        context = RunContext(
            loaded=loaded,
            device="cpu",
            faults=self._faults,
            stack=stack,
            files=job.files,
            env_object=EnvObject(job.source, job.source) if job.source else None,
        )
        env = context.env("train", 1, render=job.render)
        self.env = EnvInfo.of(env)
        self._agents = context.agents(env.specs, job.networks, learning=False)
        self._contributors = cast("Mapping[str, Contributor]", self._agents)
        for agent in self._agents.values():
            agent.attach(restore=self._cannot_roll_back, report=self._faults)
        non_finite = context.on_non_finite(job.task)
        self._collector = local_collector(env, self._base, non_finite, self._agents, Stopwatch())

    def begin(self, shared: SharedWeights) -> None:
        """Let the agents train the shared weights."""
        self._shared = shared
        for behaviour, agent in self._contributors.items():
            agent.join(self._shared.weights[behaviour])
        self._read_at = dict.fromkeys(self._agents, 0)
        self._begins = set(self._agents)  # behaviours whose next rollout has not begun

    def _cannot_roll_back(self) -> None:
        """Raise the error of a divergence, in place of a rollback."""
        raise diverged("several processes cannot go back to a checkpoint", self._run_step)

    def rollout(self) -> Report:
        """Act until an agent's rollout is complete, learn from it, and return the report."""
        for name in self._begins:
            self._read_at[name] = self._updates_of_others(name)
            self._contributors[name].renew(self._shared.statistics[name])
        self._begins.clear()
        self._run_step = self._shared.run_step
        staleness: dict[str, list[int]] = {name: [] for name in self._agents}
        steps_before = dict(self._collector.behaviour_steps)
        episodes: list[Episode] = []
        while not self._begins:
            before = self._collector.steps
            episodes += self._collector.step()
            self._shared.steps[self._job.index] += self._collector.steps - before
            for name, agent in self._agents.items():
                staleness[name] += self._learn(name, agent)
        steps = {name: n - steps_before[name] for name, n in self._collector.behaviour_steps.items()}
        return self._report(episodes, steps, staleness)

    def _learn(self, name: str, agent: Agent) -> list[int]:
        """Let an agent learn if its rollout is complete; return the staleness of each update.

        Staleness is the number of other workers' updates since the rollout began.
        """
        rollouts, updates = agent.weights_version, agent.updates
        agent.learn(self._collector.behaviour_steps[name], run_step=self._run_step)
        if agent.weights_version != rollouts:
            self._begins.add(name)
        made = agent.updates - updates
        if not made:
            return []
        self._shared.updates[name][self._job.index] += made
        return [self._updates_of_others(name) - self._read_at[name]] * made

    def _updates_of_others(self, name: str) -> int:
        """Return the number of updates that the other workers have made."""
        updates = self._shared.updates[name]
        return int(updates.sum() - updates[self._job.index])

    def _report(
        self, episodes: Sequence[Episode], steps: Mapping[str, int], staleness: Mapping[str, Sequence[int]]
    ) -> Report:
        """Return the report on a rollout; clear lines and counts of faults."""
        number, faults = self._job.number, self._faults
        report = Report(
            steps=steps,
            episodes=[replace(episode, agent=number(episode.agent)) for episode in episodes],
            agents=frozenset((name, number(agent)) for name, agent in self._collector.agents),
            work={
                name: each.contribution(number, staleness[name]) for name, each in self._contributors.items()
            },
            lines=[*self._console.lines],
            restarts=faults.env_restarts,
            dropped=faults.non_finite,
        )
        self._console.lines.clear()
        faults.env_restarts = faults.non_finite = 0
        return report


class Relay(Tee):
    """Console that keeps messages and warnings for the parent; as a tee of no consoles, it shows nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    @override
    def message(self, text: str) -> None:
        self.lines.append(text)

    @override
    def warn(self, text: str) -> None:
        self.lines.append(text)
        print(text)  # an error may come before the next report
