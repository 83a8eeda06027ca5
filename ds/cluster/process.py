"""One process of the cluster: placed, started, watched, restarted, ended."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from algorithm.core.errors import EnvError, NumericalError, StorageError, UsageError
from algorithm.core.system.processes import KILL
from ds.cluster.host import Host, NodeStatus, ProcessReport, StartCommand

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
        run: tuple[str, str],
        *,
        rule: RestartRule,
        say: Callable[[str], None],
    ) -> None:
        self.name, self.node = name, ""
        self.state: ProcessState = "placing"
        self.report: ProcessReport | None = None
        self.code: int | None = None  # of an end that no start follows
        self.why = ""
        self.output: deque[str] = deque(maxlen=_OUTPUT)
        self.fresh_lines: deque[str] = deque(maxlen=_RELAYED)
        self.lost_node = False
        self._ray, self._resources, self._make_command, self._run, self._say = (
            ray,
            resources,
            command,
            run,
            say,
        )
        self._restarts = Restarts(rule)
        self._now = self._since = self._until = self._called_at = 0.0
        self._moved_at = 0.0
        self._node_id = ""
        self._released = False  # its node
        self._ref: Any = None
        self._then: Callable[[Any], None] = self._placed
        self._place()

    @property
    def restarts(self) -> int:
        """Number of restarts."""
        return self._restarts.total

    @property
    def state_text(self) -> str:
        """The state for a person."""
        return "waits for a node with room" if self.state == "placing" else self.state

    @property
    def over(self) -> bool:
        """True if it has ended for good."""
        return self.state in ("ended", "given up")

    def step(self, now: float) -> None:
        """Advance without waiting. now: seconds of a monotonic clock."""
        self._now = now
        if self._ref is not None:
            self._hear()
        elif self.state in ("ready", "back-off", "done") and now >= self._until:
            self._call("status", self._status_received, *self._run)
        elif self.state in ("running", "leaving") and now >= self._called_at + _POLL_S:
            self._call("poll", self._polled)

    @property
    def runs(self) -> bool:
        """True if there is a process or is about to be one."""
        return self.state in ("starting", "running", "leaving")

    def move(self) -> None:
        """End the process and start it with another command, without counting that as a restart."""
        if self.state == "running" and not self._moved_at:
            self._moved_at = self._now
            self._host.signal.remote(int(signal.SIGTERM))

    def leave(self, number: signal.Signals) -> None:
        """Signal the process to end for good; see :attr:`over`."""
        if self.runs:
            self.state = "leaving"
            self._host.signal.remote(int(number))
        elif not self.over:
            self._end()

    def drop(self) -> None:
        """End it now, and release its node."""
        self._end()

    def _place(self) -> None:
        self.state, self.node, self._released = "placing", "", False
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
        self._call("where", self._placed)

    def _call(self, method: str, then: Callable[[Any], None], *arguments: object) -> None:
        self._called_at = self._now
        self._ref, self._then = getattr(self._host, method).remote(*arguments), then

    def _hear(self) -> None:
        if not self._ray.wait([self._ref], timeout=0)[0]:
            return
        ref, self._ref = self._ref, None
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(ref)
        except errors.ActorUnavailableError:  # the network; the process may well be alive
            self._call("poll", self._polled) if self._then == self._polled else self._lost(
                "node cannot be reached"
            )
        except errors.RayTaskError as error:
            self._fail(str(error.cause))
        except errors.RayActorError as error:
            self._gone(error)
        else:
            self._then(answer)

    def _placed(self, where: tuple[str, str]) -> None:
        (self.node, self._node_id), self.state = where, "ready"

    def _status_received(self, status: NodeStatus) -> None:
        if self.state not in ("ready", "back-off", "done"):
            return
        command = self._make_command(self, self.node, status)
        if command is None:
            self._until = self._now + _POLL_S
            return
        self.state, self._since, self.report, self._moved_at = "starting", self._now, None, 0.0
        self.lost_node = False
        self._call("start", self._started, command)

    def _started(self, pid: int) -> None:
        if self.state == "starting":
            self.state = "running"
            self._say(f"{self.name}: process {pid} on {self.node}")

    def _polled(self, report: ProcessReport) -> None:
        self.report = report
        self.output.extend(report.lines)
        self.fresh_lines.extend(report.lines)
        if report.code is not None:
            self._ended(report.code)
        elif self._moved_at and self._now >= self._moved_at + _MOVE_S:
            self._host.signal.remote(KILL)

    def _ended(self, code: int) -> None:
        if self.state == "leaving":
            self.code = code
            self._end()
        elif self._moved_at:
            self.state, self._until = "ready", self._now
        elif code == 0:
            self.code = 0
            self.state = "ended"
        elif code in POINTLESS:
            self.code, self.why = code, POINTLESS[code]
            self.state = "given up"
        else:
            self._again(ending(code))

    def again(self) -> None:
        """Start it once more after all, after a pause."""
        code, self.code, self.why = self.code, None, ""
        if code == 0:
            # The training is over; its learner is about to end as well.
            self.state, self._until = "done", self._now + _DONE_S
        else:
            self._again(f"exit code {code}")

    def start_anew(self) -> None:
        """Start it after its end for another part of its work, with the whole budget of restarts."""
        self.code, self.why = None, ""
        self._restarts.forget_failures()
        if self._released:
            self._place()
        else:
            self.state, self._until = "ready", self._now

    @property
    def was_refused(self) -> bool:
        """True if it ended because a learner refused it or did not answer."""
        return self.code == REFUSED

    def _again(self, reason: str, *, placed: bool = True) -> None:
        pause = self._restarts.after(self._now - self._since)
        if pause is None:
            self.code, self.why = 1, f"{reason}; {self._restarts.total} restarts did not help"
            self.state = "given up"
            self._say(f"{self.name}: {reason}; given up after {self._restarts.total} restarts")
            return
        self._until = self._now + pause
        self._say(f"{self.name}: {reason}; starts again in {pause:g} s")
        if placed:
            self.state = "back-off"
        else:
            self._place()

    def _lost(self, reason: str) -> None:
        """Place it again: its host is gone, and the process with it."""
        if self.state == "leaving":
            self._end()
        elif not self.over:
            self.lost_node = True
            self._ray.kill(self._host)
            self._again(f"{self.node or 'a node'}: {reason}", placed=False)

    def _gone(self, error: Exception) -> None:
        if self.state == "placing" and not self.node and "failed to import" in str(error):
            self._fail("this program is not on the node that Ray chose, at the same path as here")
            return
        self._lost("the node, or Ray's worker on it, died")

    def _fail(self, why: str) -> None:
        """Give up: the node cannot start it, and another try would not change that."""
        self.code, self.why, self.state = 4, f"{self.node or 'a node'} cannot start it: {why}", "given up"

    def _end(self) -> None:
        if not self.over:
            self.state = "ended"
        self._ref, self._released = None, True
        self._ray.kill(self._host)


POINTLESS = {
    UsageError.exit_code: "the configuration or the command line is wrong",
    3: "learner and actor refused each other",
    EnvError.exit_code: "the environment is unusable",
    NumericalError.exit_code: "a number is not finite",
    StorageError.exit_code: "a file of the run cannot be read or written",
}
"""Exit code after which a restart would end alike -> its meaning."""

REFUSED = 3


@dataclass(frozen=True, kw_only=True)
class RestartRule:
    """Back-off and budget of restarts.

    first, longest: seconds before the first restart and at most; each is twice the one before.
    budget:         restarts in a row that may fail.
    healthy:        seconds after which a process has come up and failures are counted anew.
    """

    first: float = 1.0
    longest: float = 60.0
    budget: int = 8
    healthy: float = 300.0


class Restarts:
    """Restarts of one process.

    total: how many there have been.
    """

    def __init__(self, rule: RestartRule) -> None:
        self._rule = rule
        self._failures = 0
        self.total = 0

    def forget_failures(self) -> None:
        """Count failures in a row anew."""
        self._failures = 0

    def after(self, lived: float) -> float | None:
        """Return the seconds until the next start; None: the budget is spent. lived: since the last one."""
        if lived >= self._rule.healthy:
            self._failures = 0
        if self._failures == self._rule.budget:
            return None
        self._failures += 1
        self.total += 1
        return float(min(self._rule.first * 2 ** (self._failures - 1), self._rule.longest))


def ending(code: int) -> str:
    """Return ``killed by SIGKILL`` or ``exit code 1``."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
