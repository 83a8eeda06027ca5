"""A process of a cluster as its command sees it: run by a Ray actor, and started again when it has failed."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from types import ModuleType
from typing import Any

from algorithm.core.errors import EnvError, NumericalError, StorageError, UsageError, explain
from algorithm.core.system.processes import KILL, ending
from ds.cluster.member import Order, ProcessActor, ProcessReport
from ds.cluster.plan import ClusterPlan

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


def log(text: str) -> None:
    """Print lines with the time of day."""
    stamp = datetime.now().strftime("%H:%M:%S")
    for line in text.splitlines():
        print(f"{stamp}  {line}", flush=True)


class StatusLog:
    """Log of a text that is looked at every ten seconds, and printed if it has changed."""

    def __init__(self) -> None:
        self._shown = ""
        self._look_at = 0.0

    def show(self, text: Callable[[], str]) -> bool:
        """Print the text if it is time for it; return whether it was."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + _SHOWN_EVERY_S
        former, self._shown = self._shown, text()
        if self._shown != former:
            log(self._shown)
        return True


class ManagedProcess:
    """Process of a Ray actor, restarted as long as that may help; subclasses define what is started.

    ray:     the module, connected
    plan:    names the process, and the folder that it starts in
    options: of Ray, for the place
    run:     the run's folder of a learner
    """

    stop_signal = signal.SIGTERM

    def __init__(
        self, ray: ModuleType, plan: ClusterPlan, name: str, options: Mapping[str, Any], run: str = ""
    ) -> None:
        self.name = plan.prefix + name
        self.node = ""
        self.state = _WAITING
        self.restarts = 0
        self._ray = ray
        self._plan = plan
        self._why = ""  # it has ended
        self._output: deque[str] = deque(maxlen=12)  # its last lines
        # Whoever loses a node is started by Ray on another one, as often as nodes are lost.
        kind = ray.remote(ProcessActor).options(max_restarts=-1, **options)
        self._member: Any = kind.remote(str(plan.folder), run, sys.argv)
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

    def explain_end(self) -> str:
        """Return the text of the error for a process that has ended and is not started again."""
        last = "\n".join(self._output) or "nothing"
        return explain(
            f"{self.name} has ended with code {self.code}",
            where=f"{self.node}, in {self._plan.folder}",
            why=f"{self._why}\nits last output:\n{last}",
            fix="",
        )

    def start(self) -> None:
        """Start it, or start it anew, with the whole budget of restarts."""
        if self._task is not None:
            self._task.cancel()
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
        if self._task is not None:
            await asyncio.wait([self._task], timeout=seconds)
            self._task.cancel()
        self._ray.kill(self._member)

    async def _keep_running(self) -> int:
        """Start it again until it has ended for good; return the exit code."""
        failures = 0
        while True:
            self._began = math.inf
            code, self._why = await self._live()
            failed = code != 0 and self.state != "leaving"
            over = self.state == "leaving" or self.is_final(code)
            self.state = "given up" if over and failed else "ended"
            if over:
                return code
            if code == 0:  # the training is over; its learner is about to end as well
                await asyncio.sleep(_DONE_S)
                continue
            if time.monotonic() - self._began >= HEALTHY_S:
                failures = 0
            if failures == BUDGET:
                log(f"{self.name}: {self._why}; given up after {self.restarts} restarts")
                self._why += f"; {self.restarts} restarts did not help"
                self.state = "given up"
                return 1
            pause = min(FIRST_PAUSE_S * 2**failures, LONGEST_PAUSE_S)
            failures += 1
            self.restarts += 1
            self.state = "back-off"
            log(f"{self.name}: {self._why}; restarts in {pause:g} s")
            await asyncio.sleep(pause)

    async def _live(self) -> tuple[int, str]:
        """Carry out one order on a node; return the exit code, and what it means."""
        errors = self._ray.exceptions
        self.state = _WAITING
        try:
            report = await self.fetch_report(None)
            self.node = report.address
            self.state = "starting"
            order = await self.make_order(report)
            pid = await self._member.start.remote(order)
            log(f"{self.name}: process {pid} on {self.node}")
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
            code = KILLED
        except asyncio.TimeoutError:
            code = KILLED
        how = "the node, or Ray's worker on it, died" if code == KILLED else ending(code)
        return code, POINTLESS.get(code) or f"{self.node}: {how}"

    async def _follow(self, pid: int) -> int:
        """Process the reports of a process until it has ended; return its exit code.

        It is ``KILLED`` if it has died with its worker: Ray may have started another one since, without it.
        Raises TimeoutError if no report arrives.
        """
        while True:
            report = await self.fetch_report()
            if report.pid != pid:
                return KILLED
            self._output.extend(report.lines)
            self.on_report(report)
            if report.code is not None:
                return int(report.code)
            await asyncio.sleep(REPORT_S)
