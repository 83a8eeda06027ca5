"""A process of a cluster as its command sees it: run by a Ray actor, and started again when it has failed."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from algorithm.core.errors import EnvError, NumericalError, StorageError, UsageError
from algorithm.core.system.processes import KILL, ending
from ds.cluster.member import Order, ProcessActor, ProcessReport

REFUSED = 3
"""Exit code after which learner and actor do not fit together."""

POINTLESS = {
    UsageError.exit_code: "the configuration or the command line is wrong",
    REFUSED: "learner and actor refused each other",
    EnvError.exit_code: "the environment is unusable",
    NumericalError.exit_code: "a number is not finite",
    StorageError.exit_code: "a file of the run cannot be read or written",
}
"""Exit code after which a restart would end alike -> its meaning."""

KILLED = 128 + KILL
"""Exit code of a process that has died with its node."""

TICK_S = 0.1
REPORT_S = 0.5
UNREACHABLE_S = 30.0
"""Seconds until a process of which no report arrives counts as dead."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Seconds before the first restart and at most; each is twice the one before."""

BUDGET = 8
"""Restarts in a row that may fail."""

HEALTHY_S = 300.0
"""Seconds after which a process has come up and failures are counted anew."""

_WAITING = "waiting for a free node"
_AWAY = "this program may not be on the node that Ray chose, at the same path and the same as here"
_SHOWN_EVERY_S = 10.0
_DONE_S = 30.0  # until a process that has ended well is started again, if it is still needed then


class Crew:
    """Whatever the processes of a command share.

    ray: the module, connected.
    log: prints a line.
    """

    def __init__(self, ray: ModuleType, *, log: Callable[[str], None]) -> None:
        self.ray = ray
        self.log = log
        self._shown = ""
        self._show_at = 0.0

    def show(self, text: Callable[[], str]) -> bool:
        """Print a text every ten seconds if it has changed; return whether it was time for them."""
        now = time.monotonic()
        if now < self._show_at:
            return False
        self._show_at = now + _SHOWN_EVERY_S
        former, self._shown = self._shown, text()
        if self._shown != former:
            self.log(self._shown)
        return True


class ManagedProcess:
    """Process of a Ray actor, restarted as long as that may help; subclasses define what is started.

    options: of Ray, for the place.
    member:  arguments of :class:`ds.cluster.member.ProcessActor`.
    """

    stop_signal = signal.SIGTERM

    def __init__(self, crew: Crew, name: str, options: Mapping[str, Any], member: tuple[Any, ...]) -> None:
        self.name = name
        self.node = ""
        self.state = _WAITING
        self.restarts = 0
        self.why = ""  # it was given up
        self.output: deque[str] = deque(maxlen=12)  # its last lines, shown with its end
        self._crew = crew
        # Whoever loses a node is started by Ray on another one, as often as nodes are lost.
        kind = crew.ray.remote(ProcessActor).options(max_restarts=-1, **options)
        self._member: Any = kind.remote(*member)
        self._task: asyncio.Task[int] | None = None
        self._began = math.inf  # when it carried out its order

    async def make_order(self, report: ProcessReport) -> Order:
        """Return the order for a node, by its report; wait while nothing can be started there."""
        raise NotImplementedError

    def is_final(self, code: int) -> bool:
        """Return whether no start follows this exit code."""
        return code in POINTLESS

    async def fetch_report(self, seconds: float | None = UNREACHABLE_S) -> ProcessReport:
        """Return a report of the process; Ray tries again while the network fails, or it has no place.

        Raises TimeoutError if none arrives in time; seconds: None to wait for as long as it takes
        """
        asked = self._member.report.options(max_task_retries=-1).remote()
        report: ProcessReport = await asyncio.wait_for(asked, seconds)
        return report

    def on_report(self, report: ProcessReport) -> None:
        """Process a report of the process."""

    @property
    def code(self) -> int | None:
        """The exit code once it has ended for good."""
        if self._task is None or not self._task.done():
            return None
        return 128 + self.stop_signal if self._task.cancelled() else self._task.result()

    @property
    def runs(self) -> bool:
        """True if it carries out an order."""
        return self.state in ("running", "leaving")

    def start(self) -> None:
        """Start it, or start it anew, with the whole budget of restarts."""
        if self._task is not None:
            self._task.cancel()
        self.why = ""
        self.state = _WAITING
        self._task = asyncio.create_task(self._keep_running())

    def leave(self) -> None:
        """Order it to end by itself, for good."""
        if self.state == "leaving":
            return
        self._member.signal.remote(int(self.stop_signal))  # also to a process that is just starting
        if self.state == "running":
            self.state = "leaving"
        elif self._task is not None:
            self._task.cancel()
            self.state = "ended"

    async def end(self, seconds: float) -> None:
        """Let it end by itself, at most for so long; then release its node."""
        self.leave()
        until = time.monotonic() + seconds
        while self.runs and time.monotonic() < until:
            await asyncio.sleep(TICK_S)
        if self._task is not None:
            self._task.cancel()
        self._crew.ray.kill(self._member)

    async def _keep_running(self) -> int:
        """Start it again until it has ended for good; return the exit code."""
        failures = 0
        while True:
            self._began = math.inf
            code, reason = await self._live()
            leaving = self.state == "leaving"
            self.state = "ended"
            if leaving:
                return code
            if self.is_final(code):
                if code != 0:
                    self._give_up(reason)
                return code
            if code == 0:  # the training is over; its learner is about to end as well
                await asyncio.sleep(_DONE_S)
                continue
            if time.monotonic() - self._began >= HEALTHY_S:
                failures = 0
            if failures == BUDGET:
                self._give_up(f"{reason}; {self.restarts} restarts did not help")
                self._crew.log(f"{self.name}: {reason}; given up after {self.restarts} restarts")
                return 1
            pause = min(FIRST_PAUSE_S * 2**failures, LONGEST_PAUSE_S)
            failures += 1
            self.restarts += 1
            self.state = "back-off"
            self._crew.log(f"{self.name}: {reason}; restarts in {pause:g} s")
            await asyncio.sleep(pause)

    async def _live(self) -> tuple[int, str]:
        """Carry out one order on a node; return the exit code, and what it means."""
        errors = self._crew.ray.exceptions
        self.state = _WAITING
        try:
            report = await self.fetch_report(None)
            self.node = report.address
            self.state = "starting"
            order = await self.make_order(report)
            pid = await self._member.start.remote(order)
            self._crew.log(f"{self.name}: process {pid} on {self.node}")
            self.state = "running"
            self._began = time.monotonic()
            code = await self._follow(pid)
        except StorageError as error:
            return error.exit_code, str(error)
        except errors.RayTaskError as error:
            return EnvError.exit_code, f"{self.node or 'a node'} cannot start it: {error.cause}"
        except errors.RayActorError as error:
            if self.state == _WAITING and not isinstance(error, errors.ActorUnavailableError):
                return EnvError.exit_code, f"a node cannot start it: {_AWAY}\n{error}"
            code = None
        except asyncio.TimeoutError:
            code = None
        if code is None:
            return KILLED, f"{self.node}: the node, or Ray's worker on it, died"
        return code, POINTLESS.get(code) or f"{self.node}: {ending(code)}"

    async def _follow(self, pid: int) -> int | None:
        """Process the reports of a process until it has ended; return its exit code.

        Return None if it has died with its worker: Ray may have started another one since, without it.
        Raises TimeoutError if no report arrives.
        """
        while True:
            report = await self.fetch_report()
            if report.pid != pid:
                return None
            self.output.extend(report.lines)
            self.on_report(report)
            if report.code is not None:
                return int(report.code)
            await asyncio.sleep(REPORT_S)

    def _give_up(self, why: str) -> None:
        self.state = "given up"
        self.why = why
