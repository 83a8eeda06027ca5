"""A learner and its actors, each placed and kept running by Ray."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from types import ModuleType

from typing_extensions import override

from algorithm.core.errors import StorageError
from ds.cluster.member import Order, ProcessReport
from ds.cluster.plan import ClusterPlan
from ds.cluster.process import POINTLESS, REFUSED, TICK_S, ManagedProcess, log
from ds.net.security import AUTHORITY, TOKEN

_LEAST = 0.0001  # of a CPU: Ray keeps no place for less

Endpoint = tuple[str, int]

_FENCE_S = 90.0
"""Seconds until the run of a learner whose node is lost may be taken over by another machine."""

_SAVING_S = 600.0
"""Seconds for a learner to save and end."""

_GOODBYE_S = 15.0
"""Seconds for actors to end before they are killed."""

_GRAVE = ("warning:", "error:")
_EXPECTED = "resumed, not bit-exact"  # a notice of every member of a new generation


class LearnerProcess(ManagedProcess):
    """The learner of a plan.

    A run that has a checkpoint is resumed; one without is set aside and begun anew.
    """

    stop_signal = signal.SIGINT  # it saves

    def __init__(self, ray: ModuleType, plan: ClusterPlan) -> None:
        self._again = plan.adopt
        self._saved = False
        self._seen = -math.inf  # when it worked
        self._endpoint: Endpoint | None = None
        flags = plan.options.cluster
        cpus = max(flags.learner_cpus if flags.ray else 0.0, _LEAST)
        gpus = min(1.0, ray.cluster_resources().get("GPU", 0) / flags.num_learners)
        # Its place on a node is kept while it is started again, as long as there is that node.
        place = ray.util.placement_group([{"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}])
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(place)
        options = {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": strategy}
        super().__init__(ray, plan, "learner", options, plan.run)

    @property
    def endpoint(self) -> Endpoint | None:
        """The address where it listens; None while it does not."""
        return self._endpoint if self.state in ("running", "leaving") else None

    @override
    async def make_order(self, report: ProcessReport) -> Order:
        """Return the order to begin or resume the run. Raises StorageError if the run is lost."""
        plan = self._plan
        again = self._again
        if again and report.locked:  # the other one may still be alive behind a broken network, and writing
            await asyncio.sleep(self._seen + _FENCE_S - time.monotonic())
            report = await self.fetch_report()
            self.node = report.address
        saved = report.step >= 0
        if again and self._saved and not saved:
            raise _lost_run(plan, report.address)
        self._endpoint, self._again = None, True
        resume = saved if again else plan.options.train.resume
        return Order(
            module=plan.module,
            options=plan.learner(
                report.address, plan.options.learner_port or 0, resume=resume, step=report.step
            ),
            secrets=plan.secrets_at(report.address),
            aside=again and not saved,
            unlock=again and report.locked,
        )

    @override
    def is_final(self, code: int) -> bool:
        """Return whether no start follows this exit code."""
        return code == 0 or code in POINTLESS

    @override
    def on_report(self, report: ProcessReport) -> None:
        """Follow its address, and relay what it prints; if there are several, only warnings and errors."""
        self._seen = time.monotonic()
        self._saved = self._saved or report.step >= 0
        if report.endpoint is not None and report.endpoint != self._endpoint:
            self._endpoint = report.endpoint
            log(f"{self.name}: listens on {self._endpoint[0]}:{self._endpoint[1]}")
        for line in report.lines:
            if self._plan.options.cluster.num_learners == 1 or (
                line.startswith(_GRAVE) and _EXPECTED not in line
            ):
                log(f"{self.name} │ {line}")


class ActorProcess(ManagedProcess):
    """An actor of a learner; it is started anew where the learner has got another address."""

    def __init__(self, ray: ModuleType, plan: ClusterPlan, learner: LearnerProcess, number: int) -> None:
        self._learner = learner
        self._dialled: Endpoint | None = None
        # On one machine there is nothing to place, and any number of actors may share it.
        cpus = plan.options.cluster.actor_cpus if plan.options.cluster.ray else 0.0
        options = {"num_cpus": cpus, "num_gpus": 0.0, "scheduling_strategy": "SPREAD"}
        super().__init__(ray, plan, f"actor {number}", options)

    @override
    async def make_order(self, report: ProcessReport) -> Order:
        """Return the order to act, once the learner has an address."""
        self.state = "waiting for the learner"
        while (endpoint := self._learner.endpoint) is None:
            await asyncio.sleep(TICK_S)
        self._dialled = endpoint
        plan = self._plan
        return Order(
            module=plan.module,
            options=plan.actor(*endpoint),
            secrets=plan.secrets_at(endpoint[0], TOKEN, AUTHORITY),  # not the learner's key
        )

    @override
    def is_final(self, code: int) -> bool:
        """Return whether no start follows this exit code; a refusal counts only of the present learner."""
        return code in POINTLESS and (code != REFUSED or self._dialled == self._learner.endpoint)

    @override
    def on_report(self, report: ProcessReport) -> None:
        """Start it anew if it dials a former address."""
        if self.state == "running" and self._learner.endpoint not in (None, self._dialled):
            self.start()


class LearnerGroup:
    """A learner and its actors, kept running according to ``plan``."""

    def __init__(self, ray: ModuleType, plan: ClusterPlan) -> None:
        self.learner = LearnerProcess(ray, plan)
        numbers = range(plan.options.cluster.num_actors)
        self.actors = [ActorProcess(ray, plan, self.learner, number) for number in numbers]

    def start(self) -> None:
        """Start all processes, or start them anew."""
        for process in (self.learner, *self.actors):
            process.start()

    def over(self) -> ManagedProcess | None:
        """Return the process whose end is that of the group; None while it goes on.

        It is the learner, an actor that a restart cannot help, or an actor once all have used up their
        restarts.
        """
        if self.learner.code is not None:
            return self.learner
        failed = [actor for actor in self.actors if actor.code is not None]
        final = [actor for actor in failed if actor.code != 1]
        return next(iter(final or (failed if len(failed) == len(self.actors) else ())), None)

    async def end(self) -> None:
        """Let the learner save and end, then end the actors."""
        await self.learner.end(_SAVING_S)
        await asyncio.gather(*(actor.end(_GOODBYE_S) for actor in self.actors))


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
