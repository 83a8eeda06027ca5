"""A learner and its actors, each placed and kept running by Ray."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

from algorithm.core.errors import StorageError, UsageError, explain
from ds.cluster.host import NodeStatus, ProcessReport, StartCommand
from ds.cluster.plan import ClusterPlan, Secrets
from ds.cluster.process import MakeCommand, ManagedProcess, Resources
from ds.cluster.restarts import REFUSED, RestartRule

TICK_S = 0.1

Endpoint = tuple[str, int]

_SAVING_S = 600.0
"""Seconds for a learner to save and end."""

_GOODBYE_S = 15.0
"""Seconds for actors to end before they are killed."""

_GRAVE = ("warning:", "error:")
_EXPECTED = "resumed, not bit-exact"  # said by every member of a new generation


class LearnerGroup:
    """A learner and its actors, kept running according to ``plan``.

    ray: the module, connected.
    say: prints a line.
    """

    def __init__(
        self,
        ray: ModuleType,
        plan: ClusterPlan,
        *,
        say: Callable[[str], None],
        rule: RestartRule,
    ) -> None:
        self._ray = ray
        self._plan = plan
        self._say = say
        self._rule = rule
        self._secrets = Secrets(plan.secrets)
        self._commands = LearnerCommands(plan, self._secrets)
        self._actors: dict[int, ManagedProcess] = {}
        self._leaving: dict[int, tuple[ManagedProcess, float]] = {}
        self._dialled: dict[str, Endpoint] = {}
        self.endpoint: Endpoint | None = None
        self.error: StorageError | None = None  # the run is lost
        self.paused = False  # the learner is not to be started
        gpus = min(1.0, ray.cluster_resources().get("GPU", 0) / plan.learners)
        resources = Resources(cpus=plan.learner_cpus, gpus=gpus, stays=True)
        self.learner = self._process("learner", resources, self._learner_command)

    @property
    def actors(self) -> Sequence[ManagedProcess]:
        """The actors that are to be there."""
        return [*self._actors.values()]

    def processes(self) -> Iterator[ManagedProcess]:
        """Yield the learner, the actors, and those that are leaving."""
        yield self.learner
        yield from self._actors.values()
        yield from (actor for actor, _ in self._leaving.values())

    def step(self, actors: int) -> None:
        """Advance without waiting. actors: how many there shall be."""
        self.learner.step()
        self.relay()
        self._follow_learner()
        self._scale(actors)
        for actor in self._actors.values():
            actor.step()
        self._drop_left()

    def relay(self) -> None:
        """Print what the learner has printed; one of several only its warnings and errors."""
        for line in self.learner.fresh_lines:
            if self._plan.learners == 1 or (line.startswith(_GRAVE) and _EXPECTED not in line):
                self._say(f"{self.learner.name} │ {line}")
        self.learner.fresh_lines.clear()

    def over(self) -> ManagedProcess | None:
        """Return the process whose end is that of the group; None while it goes on."""
        if self.learner.code == UsageError.exit_code and self._commands.took_former_port:
            self.learner.again()  # its former port may be taken; the next one takes another
        if self.learner.over:
            return self.learner
        for actor in self._actors.values():
            heard = self.endpoint is not None and self._dialled.get(actor.name) == self.endpoint
            if actor.state == "ended" or (actor.code == REFUSED and not heard):
                actor.again()  # the learner that it ended with was another one, or is about to end
        failed = [actor for actor in self._actors.values() if actor.over]
        final = [actor for actor in failed if actor.code != 1]
        if final or (failed and len(failed) == len(self._actors)):
            return (final or failed)[0]
        return None

    def start_anew(self, *, actors: bool) -> None:
        """Start the learner again after its end; ``actors``: and them, for their command is another one."""
        self.paused = False
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

    def _learner_command(
        self, process: ManagedProcess, address: str, status: NodeStatus
    ) -> StartCommand | None:
        if self.paused:
            return None
        try:
            return self._commands.next_command(address, status)
        except StorageError as error:
            self.error = error
            return None

    def _actor_command(
        self, process: ManagedProcess, address: str, status: NodeStatus
    ) -> StartCommand | None:
        if self.endpoint is None:
            return None
        self._dialled[process.name] = self.endpoint
        return StartCommand(
            arguments=tuple(self._plan.commands.actor(*self.endpoint)),
            folder=str(self._plan.folder),
            secrets=self._secrets.actor(self.endpoint[0]),
        )

    def _follow_learner(self) -> None:
        """Track the learner's address, and move actors that dial another one."""
        learner, report = self.learner, self.learner.report
        if report is not None:
            self._commands.observe(report)
        if learner.lost_node:
            self._commands.lost()
        endpoint = report.endpoint if report is not None and learner.state == "running" else None
        if endpoint is not None and endpoint != self.endpoint:
            self._say(f"{learner.name}: listens on {endpoint[0]}:{endpoint[1]}")
        self.endpoint = endpoint
        for actor in self._actors.values():
            if endpoint is not None and self._dialled.get(actor.name, endpoint) != endpoint:
                actor.move()

    def _scale(self, target: int) -> None:
        """Scale to the target size: new actors get the lowest free numbers, the highest leave."""
        for number in [number for number in self._actors if number >= target]:
            actor = self._actors.pop(number)
            actor.leave(signal.SIGTERM)
            self._leaving[number] = (actor, time.monotonic() + _GOODBYE_S)
        for number in range(target):
            if number not in self._actors and number not in self._leaving:
                resources = Resources(cpus=self._plan.actor_cpus)
                self._actors[number] = self._process(f"actor {number}", resources, self._actor_command)

    def _drop_left(self) -> None:
        for number, (actor, until) in list(self._leaving.items()):
            actor.step()
            if time.monotonic() >= until and not actor.over:
                actor.drop()
            if actor.over:
                self._say(f"{actor.name}: has left")
                del self._leaving[number]

    def _process(self, role: str, resources: Resources, command: MakeCommand) -> ManagedProcess:
        return ManagedProcess(
            self._ray,
            f"{self._plan.prefix}{role}",
            resources,
            command,
            run=(str(self._plan.folder), self._plan.run),
            rule=self._rule,
            say=self._say,
        )


def save_and_end(groups: Sequence[LearnerGroup]) -> None:
    """Let the learners save and end, then end the actors."""
    learners = [group.learner for group in groups]
    for learner in learners:
        learner.leave(signal.SIGINT)
    _wait(groups, learners, _SAVING_S)
    end(groups, by_themselves=False)


def end(groups: Sequence[LearnerGroup], *, by_themselves: bool) -> None:
    """Wait for actors that end by themselves; signal the others; kill the rest."""
    processes = [process for group in groups for process in group.processes()]
    learners = [group.learner for group in groups]
    if by_themselves:
        _wait(groups, processes, _GOODBYE_S)
    for process in processes:
        if not process.over and process.state != "leaving":
            process.leave(signal.SIGINT if process in learners else signal.SIGTERM)
    _wait(groups, processes, _GOODBYE_S)
    for process in processes:
        process.drop()


def _wait(groups: Sequence[LearnerGroup], processes: Sequence[ManagedProcess], seconds: float) -> None:
    """Step those that run until none does, at most for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(process.runs for process in processes):
        for process in processes:
            if process.runs:
                process.step()
        for group in groups:
            group.relay()
        time.sleep(TICK_S)


class LearnerCommands:
    """Commands for one start of the learner after the other.

    A run that has a checkpoint is resumed; one without is set aside and begun anew. The former port is asked
    for where the learner stays, so that actors find it again by themselves. clock: seconds.
    """

    def __init__(
        self, plan: ClusterPlan, secrets: Secrets, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._plan = plan
        self._secrets = secrets
        self._clock = clock
        self._again = plan.found
        self._saved = False
        self._former: Endpoint | None = None
        self._lost_at: float | None = None
        self.took_former_port = False  # asked for in the last order

    def observe(self, report: ProcessReport) -> None:
        """Note the learner's last report."""
        self._saved = self._saved or report.saved
        if report.endpoint is not None:
            self._former, self._lost_at = report.endpoint, None

    def lost(self) -> None:
        """Note that the learner's node is gone."""
        if self._lost_at is None:
            self._lost_at = self._clock()

    def next_command(self, address: str, status: NodeStatus) -> StartCommand | None:
        """Return the next command for the node ``address``, which reports ``status``; None: not yet.

        Raises StorageError where a run that had a checkpoint cannot be found.
        """
        again = self._again
        if again and self._saved and not status.saved:
            raise _lost_run(self._plan, address)
        unlock = again and status.locked != ""
        if unlock and self._fenced():
            return None
        former = self._former if self._former and self._former[0] == address else None
        self.took_former_port = former is not None and former[1] != self._plan.port
        port = former[1] if former else self._plan.port
        self._former = None  # if it cannot have that port, the next one takes another
        self._again = True
        resume = status.saved if again else self._plan.resume
        return StartCommand(
            arguments=tuple(self._plan.commands.learner(address, port, resume=resume, step=status.step)),
            folder=str(self._plan.folder),
            run=self._plan.run,
            secrets=self._secrets.learner(address),
            aside=again and status.exists and not status.saved,
            unlock=unlock,
        )

    def _fenced(self) -> bool:
        """Return whether the lost learner may still be alive behind a broken network, and writing."""
        return self._lost_at is not None and self._clock() < self._lost_at + self._plan.fence


def _lost_run(plan: ClusterPlan, address: str) -> StorageError:
    return StorageError(
        "the learner cannot continue",
        where=f"{plan.folder / plan.run} on {address}",
        why="the node that it ran on is gone, and this one sees no checkpoint of the run: the nodes do not "
        "share that folder",
        fix="bring the node back and add --resume to the command,\nor train again from a folder on a file "
        "system that all nodes share",
    )
