"""Training on a Ray cluster: one learner and a number of actors, each kept running."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

from algorithm.errors import StorageError, UsageError, explain
from algorithm.train.signals import StopRequest
from ds.cluster.host import NodeStatus, StartCommand
from ds.cluster.plan import ClusterPlan
from ds.cluster.process import ManagedProcess, Resources, RestartRule
from ds.cluster.start_commands import Endpoint, LearnerCommands, Secrets
from ds.cluster.target_size import TargetSizeWatcher

_TICK_S = 0.1
_SAVING_S = 600.0
"""Seconds for a learner to save and end."""

_GOODBYE_S = 15.0
"""Seconds for actors to end before they are killed."""


class Cluster:
    """Training according to ``plan``, until its learner has ended.

    ray: the module, connected.
    say: prints a line.
    Raises UsageError if another command trains that run on this cluster.
    """

    def __init__(
        self,
        ray: ModuleType,
        plan: ClusterPlan,
        *,
        say: Callable[[str], None],
        rule: RestartRule,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ray, self._plan, self._say, self._rule, self._clock = ray, plan, say, rule, clock
        self._target = TargetSizeWatcher(ray, plan.label, plan.name, plan.actors, say)
        self._secrets = Secrets(plan.secrets)
        self._commands = LearnerCommands(plan, self._secrets, clock)
        self._error: StorageError | None = None
        self._actors: dict[int, ManagedProcess] = {}
        self._leaving: dict[int, tuple[ManagedProcess, float]] = {}
        self._dialled: dict[str, Endpoint] = {}
        self._endpoint: Endpoint | None = None
        self._learner = self._process("learner", self._learner_resources(), self._learner_command)
        self._table = StatusTable(say)

    def run(self, stop: StopRequest) -> int:
        """Run until the training ends, cannot continue, or ``stop`` is set; return the exit code."""
        code = None
        while code is None and not stop:
            code = self._tick()
            time.sleep(_TICK_S)
        if code is None:
            code = self._stop(stop)
        else:
            self._end(by_themselves=code == 0)
        self._target.close()
        return code

    def _tick(self) -> int | None:
        now = self._clock()
        self._learner.step(now)
        self._relay()
        self._follow_learner()
        self._target.step(now)
        self._scale(now)
        for actor in self._actors.values():
            actor.step(now)
        self._drop_left(now)
        self._table.show(now, self._learner, [*self._actors.values()], self._endpoint, self._target.number)
        return self._outcome()

    def _learner_resources(self) -> Resources:
        gpus = 1.0 if self._ray.cluster_resources().get("GPU", 0) >= 1 else 0.0
        return Resources(cpus=self._plan.learner_cpus, gpus=gpus, stays=True)

    def _learner_command(
        self, process: ManagedProcess, address: str, status: NodeStatus
    ) -> StartCommand | None:
        try:
            return self._commands.next_command(address, status)
        except StorageError as error:
            self._error = error
            return None

    def _actor_command(
        self, process: ManagedProcess, address: str, status: NodeStatus
    ) -> StartCommand | None:
        if self._endpoint is None:
            return None
        self._dialled[process.name] = self._endpoint
        return StartCommand(
            arguments=tuple(self._plan.commands.actor(*self._endpoint)),
            folder=str(self._plan.folder),
            secrets=self._secrets.actor(self._endpoint[0]),
        )

    def _follow_learner(self) -> None:
        """Track the learner's address, and move actors that dial another one."""
        learner, report = self._learner, self._learner.report
        if report is not None:
            self._commands.observe(report)
        if learner.lost_node:
            self._commands.lost()
        endpoint = report.endpoint if report is not None and learner.state == "running" else None
        if endpoint is not None and endpoint != self._endpoint:
            self._say(f"learner: listens on {endpoint[0]}:{endpoint[1]}")
        self._endpoint = endpoint
        for actor in self._actors.values():
            if endpoint is not None and self._dialled.get(actor.name, endpoint) != endpoint:
                actor.move()

    def _relay(self) -> None:
        for line in self._learner.fresh_lines:
            self._say(f"learner │ {line}")
        self._learner.fresh_lines.clear()

    def _scale(self, now: float) -> None:
        """Scale to the target size: new actors get the lowest free numbers, the highest leave."""
        target = self._target.number
        for number in [number for number in self._actors if number >= target]:
            actor = self._actors.pop(number)
            actor.leave(signal.SIGTERM)
            self._leaving[number] = (actor, now + _GOODBYE_S)
        for number in range(target):
            if number not in self._actors and number not in self._leaving:
                resources = Resources(cpus=self._plan.actor_cpus)
                self._actors[number] = self._process(f"actor {number}", resources, self._actor_command)

    def _drop_left(self, now: float) -> None:
        for number, (actor, until) in list(self._leaving.items()):
            actor.step(now)
            if now >= until and not actor.over:
                actor.drop()
            if actor.over:
                self._say(f"{actor.name}: has left")
                del self._leaving[number]

    def _outcome(self) -> int | None:
        """Return the exit code if the training is over or cannot continue."""
        if self._error is not None:
            self._say(f"error: {self._error}")
            return self._error.exit_code
        if self._learner.code == UsageError.exit_code and self._commands.took_former_port:
            self._learner.again()  # its former port may be taken; the next one takes another
        if self._learner.over:
            return self._report_end(self._learner)
        for actor in self._actors.values():
            if actor.state == "ended" or (actor.was_refused and not self._was_heard(actor)):
                actor.again()  # the learner that it ended with was another one, or is about to end
        failed = [actor for actor in self._actors.values() if actor.over]
        final = [actor for actor in failed if actor.code != 1]
        if final or (failed and len(failed) == len(self._actors)):
            return self._report_end((final or failed)[0])
        return None

    def _was_heard(self, actor: ManagedProcess) -> bool:
        """Return whether the learner that the actor dialled still listens."""
        return self._endpoint is not None and self._dialled.get(actor.name) == self._endpoint

    def _report_end(self, process: ManagedProcess) -> int:
        assert process.code is not None
        if process.code == 0:
            self._say(f"the training is over; its run is {self._plan.run} on {process.node}")
            return 0
        lines = "\n".join(process.output) or "nothing"
        error = explain(
            f"{process.name} has ended with code {process.code}",
            where=f"{process.node}, in {self._plan.folder}",
            why=f"{process.why}\nthe last it said:\n{lines}",
            fix="",
        )
        self._say(f"error: {error}")
        return process.code

    def _stop(self, stop: StopRequest) -> int:
        """Let the learner save and end, then end the actors."""
        self._say(stop.text)
        self._learner.leave(signal.SIGINT)
        until = self._clock() + _SAVING_S
        while not self._learner.over and self._clock() < until:
            self._learner.step(self._clock())
            self._relay()
            time.sleep(_TICK_S)
        self._end(by_themselves=False)
        self._say("everything has ended")
        return stop.exit_code

    def _end(self, *, by_themselves: bool) -> None:
        """Wait for actors that end by themselves; signal the others; kill the rest."""
        if by_themselves:
            self._wait()
        for process in self._processes():
            if not process.over and process.state != "leaving":
                process.leave(signal.SIGINT if process is self._learner else signal.SIGTERM)
        self._wait()
        for process in self._processes():
            process.drop()

    def _wait(self) -> None:
        until = self._clock() + _GOODBYE_S
        while self._clock() < until and any(process.runs for process in self._processes()):
            for process in self._processes():
                if process.runs:
                    process.step(self._clock())
            time.sleep(_TICK_S)

    def _processes(self) -> Iterator[ManagedProcess]:
        yield self._learner
        yield from self._actors.values()
        yield from (actor for actor, _ in self._leaving.values())

    def _process(
        self,
        name: str,
        resources: Resources,
        command: Callable[[ManagedProcess, str, NodeStatus], StartCommand | None],
    ) -> ManagedProcess:
        run = (str(self._plan.folder), self._plan.run)
        return ManagedProcess(self._ray, name, resources, command, run, rule=self._rule, say=self._say)


_EVERY_S = 10.0
_SINGLE = 20
"""Number of processes above which the actors of a node share a line."""


class StatusTable:
    """Table of all processes, shown every ten seconds if it has changed."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._next = 0.0
        self._shown: list[str] = []

    def show(
        self,
        now: float,
        learner: ManagedProcess,
        actors: Sequence[ManagedProcess],
        endpoint: tuple[str, int] | None,
        target: int,
    ) -> None:
        """Show the table if it is due. now: seconds."""
        if now < self._next:
            return
        self._next = now + _EVERY_S
        lines = rows(learner, actors, endpoint, target)
        if lines != self._shown:
            self._shown = lines
            for line in lines:
                self._say(line)


def rows(
    learner: ManagedProcess, actors: Sequence[ManagedProcess], endpoint: tuple[str, int] | None, target: int
) -> list[str]:
    """Return the lines: node, role, state, restarts; the head counts running actors."""
    running = sum(actor.state == "running" for actor in actors)
    cells = [("node", "role", "state", "restarts")]
    state = "listening" if endpoint else _state(learner)
    cells.append((learner.node or "-", "learner", state, str(learner.restarts)))
    if len(actors) <= _SINGLE:
        cells += [(a.node or "-", a.name, _state(a), str(a.restarts)) for a in actors]
    else:
        cells += [_together(node, actors) for node in sorted({actor.node for actor in actors})]
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return [f"{running} of {target} actors run", *(f"  {line}".rstrip() for line in lines)]


def _together(node: str, actors: Sequence[ManagedProcess]) -> tuple[str, str, str, str]:
    here = [actor for actor in actors if actor.node == node]
    states = Counter(_state(actor) for actor in here)
    said = ", ".join(f"{count} {state}" for state, count in states.most_common())
    return node or "-", f"{len(here)} actors", said, str(sum(actor.restarts for actor in here))


def _state(process: ManagedProcess) -> str:
    if process.state == "placing":
        return "waits for a node with room"
    return "waits for the learner" if process.state == "ready" else process.state
