"""The processes of a cluster as its command sees them: placed and restarted by Ray, watched over a board."""

from __future__ import annotations

import secrets
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from algorithm.core.errors import EnvError, NumericalError, StorageError, UsageError
from algorithm.core.system.processes import KILL, ending
from ds.cluster.member import Board, Order, ProcessActor, ProcessReport

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
"""Exit code of a process that has died without one."""

_AWAY = "this program may not be on the node that Ray chose, at the same path and the same as here"
_SILENT_S = 60.0  # without a report: the node is gone, and Ray has no other one yet
_SHOWN_EVERY_S = 10.0
_DONE_S = 30.0  # until a process that has ended well is started again, if it is still needed then


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


class ManagedProcess:
    """Process of a learner or an actor, started as often as needed; each start is a life with one order.

    place_actor: makes a Ray actor, and returns its handle.
    place:    key, folder and run as :class:`ds.cluster.member.Life` has them.
    make_order: returns the order of a life that is ready, by its report; None while nothing can be started.
    on_line:  called with each line that it prints.
    """

    def __init__(
        self,
        crew: Crew,
        name: str,
        place_actor: Callable[[], Any],
        place: tuple[str, str, str],
        make_order: Callable[[ProcessReport], Order | None],
        on_line: Callable[[str], None],
    ) -> None:
        self.name = name
        self.node = ""
        self.restarts = 0
        self.order: Order | None = None  # of the life that works
        self.report: ProcessReport | None = None  # of that life, the last one
        self.code: int | None = None  # of an end that no start follows
        self.why = ""
        self.output: deque[str] = deque(maxlen=12)  # its last lines, shown with its end
        self._crew = crew
        self._place_actor = place_actor
        self._place = (crew.board, *place, sys.argv)
        self._stop = signal.SIGINT if place[2] else signal.SIGTERM  # a learner saves
        self._make_order = make_order
        self._on_line = on_line
        self._failures = 0  # in a row
        self._heard = self._since = self._until = 0.0
        self.left_at: float | None = None  # it was ordered to leave
        self.ref: Any = None
        self._call_new_actor()

    @property
    def over(self) -> bool:
        """True if it has ended for good."""
        return self.code is not None

    @property
    def runs(self) -> bool:
        """True if it carries out an order, according to a recent report."""
        return self.order is not None and time.monotonic() < self._heard + _SILENT_S

    @property
    def state(self) -> str:
        """The state in words, for display."""
        now = time.monotonic()
        if self.over:
            return "given up" if self.why else "ended"
        if self.runs:
            return "leaving" if self.left_at else "running"
        if now < self._until:
            return "back-off"
        return "waiting for the learner" if now < self._heard + _SILENT_S else "waiting for a free node"

    def hear(self, report: ProcessReport) -> None:
        """Process a report; give an order to a life that is ready."""
        former, self.node, self._heard = self.node, report.address, time.monotonic()
        lines, last = report.lines, self.output[-1] if self.output else ""
        if not report.pid and last in lines:  # left by a life that was killed; some of them are known
            lines = lines[len(lines) - lines[::-1].index(last) :]
        self.output.extend(lines)
        for line in lines:
            self._on_line(line)
        if self.order is not None and self.order.life != report.life:
            what = "its process died" if former == self.node else "the node, or Ray's worker on it, died"
            self._ended(KILLED, f"{former}: {what}")
        elif self.order is not None and report.code is not None:
            self._crew.ray.kill(self.actor, no_restart=False)  # Ray starts another one
            self._ended(report.code, ending(report.code))
        elif self.order is not None and report.pid and self.report is None:
            self._crew.log(f"{self.name}: process {report.pid} on {self.node}")
        self.report = report if self.order is not None and report.pid else None
        is_ready = not report.pid and not self.over and self._heard >= self._until
        if self.order is None and is_ready:
            self.order, self._since = self._make_order(report), self._heard

    def recall(self) -> None:
        """Call the Ray actor again after its call has ended; give up if Ray cannot start it."""
        errors = self._crew.ray.exceptions
        try:
            self._crew.ray.get(self.ref)
        except errors.ActorUnavailableError:  # Ray starts it again, or the network is down
            self.ref = self.actor.live.remote(*self._place)
        except errors.RayTaskError as error:
            self._fail(str(error.cause))
        except errors.RayActorError as error:
            if self._heard > self._placed_at:  # it has been started as often as Ray starts one
                self._call_new_actor()
            else:
                self._fail(f"{_AWAY}\n{error}")

    def _call_new_actor(self) -> None:
        self._placed_at = time.monotonic()
        self.actor = self._place_actor()
        self.ref = self.actor.live.remote(*self._place)

    def _fail(self, why: str) -> None:
        """Give up: no node can start it, and another try would not change that."""
        self.code, self.why = EnvError.exit_code, f"{self.node or 'a node'} cannot start it: {why}"

    def start_anew(self) -> None:
        """Start it again at once after its end, to do more work, with the whole budget of restarts."""
        self._failures = 0
        self._wait(0.0)

    def again(self) -> None:
        """Take back that it has ended for good: start it once more after a pause, within the budget."""
        if self.code == 0:
            self._wait(_DONE_S)  # the training is over; its learner is about to end as well
        else:
            self._again(f"exit code {self.code}")

    def move(self) -> None:
        """Kill the process; start it by a new order of ``make_order``, which does not count as a restart."""
        self._crew.ray.kill(self.actor, no_restart=False)
        self._wait(0.0)

    def leave(self) -> None:
        """Order the process to end by itself, for good; see :attr:`over`."""
        self.left_at = self.left_at or time.monotonic()
        if self.order is not None and self.runs:
            self.order = replace(self.order, signal=int(self._stop))
        elif not self.over:
            self.code = 128 + self._stop

    def _ended(self, code: int, reason: str) -> None:
        """End its life; start another one, unless it has ended as it should or would end alike."""
        self.order = None
        if self.left_at or code == 0:
            self.code = code
        elif code in POINTLESS:
            self.code, self.why = code, POINTLESS[code]
        else:
            self._again(reason)

    def _again(self, reason: str) -> None:
        """Start it after a pause, or give up once the budget of restarts is used up."""
        rule = self._crew.rule
        if time.monotonic() - self._since >= rule.healthy:
            self._failures = 0
        if self._failures == rule.budget:
            self.code, self.why = 1, f"{reason}; {self.restarts} restarts did not help"
            self._crew.log(f"{self.name}: {reason}; given up after {self.restarts} restarts")
            return
        pause = min(rule.first * 2**self._failures, rule.longest)
        self._failures += 1
        self.restarts += 1
        self._wait(pause)
        self._crew.log(f"{self.name}: {reason}; restarts in {pause:g} s")

    def _wait(self, seconds: float) -> None:
        """Let the next life that is ready begin, in so many seconds at the earliest."""
        self.order = self.code = self.left_at = None
        self.why = ""
        self._until = time.monotonic() + seconds


class Crew:
    """The processes of a command, and the board over which they report to it.

    number: of actors at first.
    name:   of the board, by which other commands find it.
    log:    prints a line.
    Raises ValueError if Ray has such a board.
    """

    def __init__(
        self,
        ray: ModuleType,
        number: int = 0,
        name: str | None = None,
        *,
        log: Callable[[str], None],
        rule: RestartRule,
    ) -> None:
        self.ray = ray
        self.log = log
        self.rule = rule
        node = ray.get_runtime_context().get_node_id()
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        options = {"name": name, "num_cpus": 0, "scheduling_strategy": here}
        board = ray.remote(Board).options(max_restarts=-1, max_task_retries=-1, **options)
        self.board: Any = board.remote(number)
        self._processes: dict[str, ManagedProcess] = {}
        self._shown: Sequence[str] = ()
        self._show_at = 0.0

    def show(self, lines: Callable[[], Sequence[str]]) -> bool:
        """Print lines every ten seconds if they have changed; return whether it was time for them."""
        now = time.monotonic()
        if now < self._show_at:
            return False
        self._show_at = now + _SHOWN_EVERY_S
        former, self._shown = self._shown, lines()
        if self._shown != former:
            self.log("\n".join(self._shown))
        return True

    def add(
        self,
        name: str,
        options: Mapping[str, Any],
        place: tuple[str, str],
        make_order: Callable[[ProcessReport], Order | None],
        on_line: Callable[[str], None],
    ) -> ManagedProcess:
        """Add a process, which Ray will place; return it. place: its folder, and the run's below it, if any.

        options: of Ray; make_order, on_line: see :class:`ManagedProcess`
        """
        key = f"sac-{secrets.token_hex(8)}"
        # Without arguments: what they refer to might be gone when Ray starts it again.
        member = self.ray.remote(ProcessActor).options(max_restarts=self.rule.budget, **options)
        self._processes[key] = ManagedProcess(self, name, member.remote, (key, *place), make_order, on_line)
        return self._processes[key]

    def step(self, number: int = 0) -> int:
        """Process all reports; return the number of actors to run: ``number``, unless another one was set."""
        orders = {key: process.order for key, process in self._processes.items() if process.order}
        number, reports = self.ray.get(self.board.exchange.remote(orders, number))
        for key, report in reports:
            if key in self._processes:
                self._processes[key].hear(report)
        calls = [process.ref for process in self._processes.values()]
        ended = self.ray.wait(calls, num_returns=len(calls), timeout=0)[0] if calls else []
        for process in self._processes.values():
            if process.ref in ended and not process.over:
                process.recall()
        return int(number)

    def drop(self, process: ManagedProcess) -> None:
        """End a process now, and release its node."""
        process.code = KILLED if process.code is None else process.code
        self.ray.kill(process.actor)
        self._processes = {key: other for key, other in self._processes.items() if other is not process}

    def close(self) -> None:
        """End the board, so that its name is free."""
        self.ray.kill(self.board)
