"""A learner and its actors, each placed and kept running by Ray."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial

from algorithm.core.errors import StorageError, UsageError, explain
from ds.cluster.member import Order, ProcessReport
from ds.cluster.plan import ClusterPlan
from ds.cluster.process import REFUSED, Crew, ManagedProcess
from ds.net.security import AUTHORITY, TOKEN

TICK_S = 0.1
_LEAST = 0.0001  # of a CPU: Ray keeps no place for less

Endpoint = tuple[str, int]

_SAVING_S = 600.0
"""Seconds for a learner to save and end."""

_GOODBYE_S = 15.0
"""Seconds for actors to end before they are killed."""

_GRAVE = ("warning:", "error:")
_EXPECTED = "resumed, not bit-exact"  # a notice of every member of a new generation


class LearnerGroup:
    """A learner and its actors among the processes of a ``crew``, kept running according to ``plan``.

    A run that has a checkpoint is resumed; one without is set aside and begun anew. A learner that is
    started again on the same node gets its former port if that is free, so that actors find it again.
    """

    def __init__(self, crew: Crew, plan: ClusterPlan) -> None:
        self._crew = crew
        self._plan = plan
        self._again = plan.adopt
        self._saved = False
        self._former: Endpoint | None = None  # of the learner; None if it could not have that again
        self._took_former_port = False
        self._seen = -math.inf  # when the learner worked
        self._actors: dict[int, ManagedProcess] = {}
        self._dialled: dict[int, Endpoint] = {}
        self.endpoint: Endpoint | None = None
        self.error: StorageError | None = None  # the run is lost
        ray, cpus = crew.ray, plan.learner_cpus or _LEAST
        gpus = min(1.0, ray.cluster_resources().get("GPU", 0) / plan.learners)
        # Its place on a node is kept while it is started again, as long as there is that node.
        place = ray.util.placement_group([{"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}])
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(place)
        options = {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": strategy}
        self.learner = crew.add(
            f"{plan.prefix}learner",
            options,
            (str(plan.folder), plan.run),
            self.learner_order,
            self._relay,
        )

    @property
    def actors(self) -> Sequence[ManagedProcess]:
        """The actors, without those that were ordered to leave."""
        return [actor for actor in self._actors.values() if not actor.left_at]

    @property
    def processes(self) -> Sequence[ManagedProcess]:
        """The learner and all actors, also those that are leaving."""
        return [self.learner, *self._actors.values()]

    def step(self, target: int) -> None:
        """Add actors or order some to leave, until there are ``target``; call it after the crew's step.

        It does not wait. New actors get the lowest free numbers, and those with the highest ones leave.
        """
        self._follow_learner()
        for number in range(target):
            if number not in self._actors:
                cpus = self._plan.actor_cpus
                options = {"num_cpus": cpus, "num_gpus": 0.0, "scheduling_strategy": "SPREAD"}
                self._actors[number] = self._crew.add(
                    f"{self._plan.prefix}actor {number}",
                    options,
                    (str(self._plan.folder), ""),
                    partial(self._actor_order, number),
                    lambda line: None,
                )
        for number, actor in list(self._actors.items()):
            if number >= target:
                actor.leave()
            if actor.left_at and (actor.over or time.monotonic() >= actor.left_at + _GOODBYE_S):
                self._crew.drop(actor)
                self._crew.log(f"{actor.name}: has left")
                del self._actors[number]

    def over(self) -> ManagedProcess | None:
        """Return the process whose end is that of the group; None while it goes on.

        It is the learner, an actor that a restart cannot help, or an actor once all have used up their
        restarts. Processes that only ended with a former learner or its port are started again.
        """
        if self.learner.code == UsageError.exit_code and self._took_former_port:
            self.learner.again()  # its former port may be taken; the next one takes another
        if self.learner.over:
            return self.learner
        for number, actor in self._actors.items():
            heard = self.endpoint is not None and self._dialled.get(number) == self.endpoint
            if actor.code == 0 or (actor.code == REFUSED and not heard):
                actor.again()  # the learner that it ended with was another one, or is about to end
        failed = [actor for actor in self.actors if actor.over]
        final = [actor for actor in failed if actor.code != 1]
        return next(iter(final or (failed if len(failed) == len(self.actors) else ())), None)

    def start_anew(self, *, actors: bool) -> None:
        """Start the learner again after its end, and actors that have ended.

        actors: start the others again, too, since their command is another one
        """
        self.learner.start_anew()
        for actor in self._actors.values():
            if actor.over:
                actor.start_anew()
            elif actors:
                actor.move()

    def explain_end(self, process: ManagedProcess) -> str:
        """Return the error for the end of a process that cannot go on."""
        last = "\n".join(process.output) or "nothing"
        return explain(
            f"{process.name} has ended with code {process.code}",
            where=f"{process.node}, in {self._plan.folder}",
            why=f"{process.why}\nits last output:\n{last}",
            fix="",
        )

    def _relay(self, line: str) -> None:
        """Log a line that the learner has printed; if there are several, only warnings and errors."""
        if self._plan.learners == 1 or (line.startswith(_GRAVE) and _EXPECTED not in line):
            self._crew.log(f"{self.learner.name} │ {line}")

    def learner_order(self, report: ProcessReport) -> Order | None:
        """Return the order for a learner that is ready; None: not yet, or never, which sets :attr:`error`."""
        plan, again, saved = self._plan, self._again, report.step >= 0
        if again and self._saved and not saved:
            self.error = _lost_run(plan, report.address)
            return None
        unlock = again and report.locked
        if unlock and time.monotonic() < self._seen + plan.fence:
            return None  # it may still be alive behind a broken network, and writing
        former = self._former if self._former and self._former[0] == report.address else None
        self._took_former_port = former is not None and former[1] != plan.port
        port = former[1] if former else plan.port
        self._former, self._again = None, True
        resume = saved if again else plan.resume
        return Order(
            life=report.life,
            module=plan.roles.module,
            options=plan.roles.learner(report.address, port, resume=resume, step=report.step),
            secrets=plan.secrets_at(report.address),
            aside=again and report.exists and not saved,
            unlock=unlock,
        )

    def _actor_order(self, number: int, report: ProcessReport) -> Order | None:
        """Return the order for an actor that is ready; None while the learner has no address."""
        if self.endpoint is None:
            return None
        self._dialled[number] = self.endpoint
        plan, host = self._plan, self.endpoint[0]
        return Order(
            life=report.life,
            module=plan.roles.module,
            options=plan.roles.actor(*self.endpoint),
            secrets=plan.secrets_at(host, TOKEN, AUTHORITY),  # not the learner's key
        )

    def _follow_learner(self) -> None:
        """Track the learner's address, and start actors again that dial another one."""
        report = self.learner.report
        endpoint = report.endpoint if report is not None else None
        if report is not None:
            self._seen = time.monotonic()
            self._saved = self._saved or report.step >= 0
            self._former = endpoint or self._former
        if endpoint is not None and endpoint != self.endpoint:
            self._crew.log(f"{self.learner.name}: listens on {endpoint[0]}:{endpoint[1]}")
        self.endpoint = endpoint
        for number, actor in self._actors.items():
            if endpoint and actor.runs and not actor.left_at and self._dialled[number] != endpoint:
                actor.move()


def save_and_end(crew: Crew, groups: Sequence[LearnerGroup]) -> None:
    """Let the learners save and end, then end the actors."""
    _leave(crew, [group.learner for group in groups], _SAVING_S)
    end(crew, groups)


def end(crew: Crew, groups: Sequence[LearnerGroup], *, wait: bool = False) -> None:
    """End all processes. wait: first give them time to end by themselves."""
    processes = [process for group in groups for process in group.processes]
    if wait:
        _wait(crew, processes, _GOODBYE_S)
    _leave(crew, processes, _GOODBYE_S)
    for process in processes:
        crew.drop(process)


def _leave(crew: Crew, processes: Sequence[ManagedProcess], seconds: float) -> None:
    """Order the processes to end, and wait until none of them runs, at most for so long."""
    for process in processes:
        process.leave()
    _wait(crew, processes, seconds)


def _wait(crew: Crew, processes: Sequence[ManagedProcess], seconds: float) -> None:
    """Wait until none of the processes runs, at most for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(process.runs for process in processes):
        crew.step()
        time.sleep(TICK_S)


def _lost_run(plan: ClusterPlan, address: str) -> StorageError:
    """Return the error for a run whose checkpoints this node does not see. address: of this node."""
    return StorageError(
        "the learner cannot continue",
        where=f"{plan.folder / plan.run} on {address}",
        why="the node that it ran on is gone, and this one sees no checkpoint of the run: the nodes do not "
        "share that folder",
        fix="bring the node back and add --resume to the command,\nor train again from a folder on a file "
        "system that all nodes share",
    )
