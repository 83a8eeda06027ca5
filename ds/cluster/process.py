"""One process of the cluster: placed, started, watched, restarted, ended."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from algorithm.core.system.processes import KILL, ending
from ds.cluster.host import Host, NodeStatus, ProcessReport, StartCommand
from ds.cluster.restarts import POINTLESS, RestartRule, Restarts

ProcessState = Literal[
    "placing", "ready", "starting", "running", "back-off", "done", "leaving", "ended", "given up"
]
"""placing: Ray looks for a node · ready: has one, waits for its command · back-off: will be started again ·
done: has ended well, a moment before its learner does."""

_POLL_S = 0.5
_MOVE_S = 15.0  # for a process to end that is to dial another address
_RELAYED = 500
_DONE_S = 30.0  # until a process that has ended well is started again, if it is still needed then
_OUTPUT = 12
"""Number of a process's last lines that are shown with its end."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of a process in Ray's units, and whether it prefers to stay on its node."""

    cpus: float
    gpus: float = 0.0
    stays: bool = False


MakeCommand = Callable[["ManagedProcess", str, NodeStatus], "StartCommand | None"]
"""Maker of the command for an address with that status; None: nothing can be started yet."""

_Life = Generator[Any, Any, None]
"""Yields a reference of Ray, to be resumed with its value, or None, to be resumed at the next step."""


class ManagedProcess:
    """Process that is placed on a node, started, watched and restarted.

    command: asked before each start.
    run:   folder and, below it, the run's folder, for :class:`NodeStatus`.
    say:   prints every start and end.
    """

    def __init__(
        self,
        ray: ModuleType,
        name: str,
        resources: Resources,
        command: MakeCommand,
        *,
        run: tuple[str, str],
        rule: RestartRule,
        say: Callable[[str], None],
    ) -> None:
        self.name = name
        self.node = ""
        self.state: ProcessState = "placing"
        self.report: ProcessReport | None = None
        self.code: int | None = None  # of an end that no start follows
        self.why = ""
        self.output: deque[str] = deque(maxlen=_OUTPUT)
        self.fresh_lines: deque[str] = deque(maxlen=_RELAYED)
        self.lost_node = False
        self._ray = ray
        self._resources = resources
        self._make_command = command
        self._run = run
        self._say = say
        self._restarts = Restarts(rule)
        self._since = 0.0  # it was placed, or started
        self._until = 0.0  # no start before
        self._moved_at: float | None = None
        self._node_id = ""
        self._released = True  # its node
        self._life: _Life
        self._ref: Any = None
        self.start_anew()

    @property
    def restarts(self) -> int:
        """Number of restarts."""
        return self._restarts.total

    @property
    def state_text(self) -> str:
        """The state for a person."""
        return "waiting for a free node" if self.state == "placing" else self.state

    @property
    def over(self) -> bool:
        """True if it has ended for good."""
        return self.state in ("ended", "given up")

    @property
    def runs(self) -> bool:
        """True if there is a process or is about to be one."""
        return self.state in ("starting", "running", "leaving")

    def step(self) -> None:
        """Advance without waiting."""
        if self._released or (self._ref is not None and not self._ray.wait([self._ref], timeout=0)[0]):
            return
        try:
            answer = None if self._ref is None else self._ray.get(self._ref)
        except (self._ray.exceptions.RayTaskError, self._ray.exceptions.RayActorError) as error:
            self._ref = self._life.throw(error)
        else:
            self._ref = self._life.send(answer)

    def start_anew(self) -> None:
        """Start it after its end for another part of its work, with the whole budget of restarts."""
        self.code = None
        self.why = ""
        self._restarts.forget_failures()
        if self._released:
            self._life = self._live()
            self._ref = next(self._life)
        else:
            self._ready_at(time.monotonic())

    def again(self) -> None:
        """Start it once more after all, after a pause."""
        code, self.code = self.code, None
        self.why = ""
        if code == 0:
            # The training is over; its learner is about to end as well.
            self._ready_at(time.monotonic() + _DONE_S, "done")
        else:
            self._again(f"exit code {code}")

    def move(self) -> None:
        """End the process and start it with another command, without counting that as a restart."""
        if self.state == "running" and self._moved_at is None:
            self._moved_at = time.monotonic()
            self._host.signal.remote(int(signal.SIGTERM))

    def leave(self, number: signal.Signals) -> None:
        """Signal the process to end for good; see :attr:`over`."""
        if self.runs:
            self.state = "leaving"
            self._host.signal.remote(int(number))
        elif not self.over:
            self.drop()

    def drop(self) -> None:
        """End it now, and release its node."""
        if not self.over:
            self.state = "ended"
        self._released = True
        self._ray.kill(self._host)

    def _live(self) -> _Life:
        """Run on one node after the other."""
        errors = self._ray.exceptions
        while True:
            self._place()
            try:
                yield from self._serve()
            except errors.RayTaskError as error:
                self._fail(str(error.cause))
            except errors.ActorUnavailableError:
                self._lost("node cannot be reached")
            except errors.RayActorError as error:
                if self.state == "placing" and "failed to import" in str(error):
                    self._fail("this program is not on the node that Ray chose, at the same path as here")
                else:
                    self._lost("the node, or Ray's worker on it, died")
            while self.over:
                yield None

    def _serve(self) -> _Life:
        """Run one process after the other on a node. Raises Ray's errors."""
        self.node, self._node_id = yield self._host.where.remote()
        self.state = "ready"
        while True:
            while self.over or time.monotonic() < self._until:
                yield None
            status = yield self._host.status.remote(*self._run)
            command = self._make_command(self, self.node, status)
            if command is None:
                self._until = time.monotonic() + _POLL_S
                continue
            self.state = "starting"
            self._since = time.monotonic()
            self.report = None
            self._moved_at = None
            self.lost_node = False
            pid = yield self._host.start.remote(command)
            if self.state == "starting":
                self.state = "running"
                self._say(f"{self.name}: process {pid} on {self.node}")
            self._ended((yield from self._watch()))

    def _watch(self) -> Generator[Any, Any, int]:
        """Poll the process until it has ended; return its exit code."""
        while True:
            until = time.monotonic() + _POLL_S
            while time.monotonic() < until:
                yield None
            try:
                report: ProcessReport = yield self._host.poll.remote()
            except self._ray.exceptions.ActorUnavailableError:  # the network; the process may well be alive
                continue
            self.report = report
            self.output.extend(report.lines)
            self.fresh_lines.extend(report.lines)
            if report.code is not None:
                return report.code
            if self._moved_at is not None and time.monotonic() >= self._moved_at + _MOVE_S:
                self._host.signal.remote(KILL)

    def _place(self) -> None:
        self.state = "placing"
        self.node = ""
        self._released = False
        self._since = time.monotonic()
        strategy: Any = "SPREAD"
        if self._resources.stays and self._node_id:
            affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
            strategy = affinity(self._node_id, soft=True)  # elsewhere if that node is gone
        actor = self._ray.remote(Host).options(
            num_cpus=self._resources.cpus,
            num_gpus=self._resources.gpus,
            scheduling_strategy=strategy,
            max_restarts=0,
        )
        self._host = actor.remote()

    def _ready_at(self, until: float, state: ProcessState = "ready") -> None:
        self.state = state
        self._until = until

    def _ended(self, code: int) -> None:
        if self.state == "leaving":
            self.code = code
            self.drop()
        elif self._moved_at is not None:
            self._ready_at(time.monotonic())
        elif code == 0:
            self.code = 0
            self.state = "ended"
        elif code in POINTLESS:
            self._give_up(code, POINTLESS[code])
        else:
            self._again(ending(code))

    def _again(self, reason: str) -> None:
        pause = self._restarts.after(time.monotonic() - self._since)
        if pause is None:
            self._give_up(1, f"{reason}; {self.restarts} restarts did not help")
            self._say(f"{self.name}: {reason}; given up after {self.restarts} restarts")
            return
        self._ready_at(time.monotonic() + pause, "back-off")
        self._say(f"{self.name}: {reason}; restarts in {pause:g} s")

    def _lost(self, reason: str) -> None:
        """Note that its host is gone, and the process with it."""
        if self.state == "leaving":
            self.drop()
        elif not self.over:
            self.lost_node = True
            self._ray.kill(self._host)
            self._again(f"{self.node or 'a node'}: {reason}")

    def _fail(self, why: str) -> None:
        """Give up: the node cannot start it, and another try would not change that."""
        self._give_up(4, f"{self.node or 'a node'} cannot start it: {why}")

    def _give_up(self, code: int, why: str) -> None:
        self.state = "given up"
        self.code = code
        self.why = why
