"""One worker process as its parent sees it: started, asked, found dead or hanging, replaced, ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from algorithm.env.pool.env_group import GroupFailure
from algorithm.env.pool.monitor_process import kill_group, monitor_process
from algorithm.env.pool.step_buffers import StepBuffers
from algorithm.env.pool.watchdog import ActiveTime
from algorithm.env.pool.worker import WorkerReady, WorkerRefusal, run_worker, truncate_log
from algorithm.env.single import MakeEnv
from algorithm.errors import EnvError

_STACK_TIMEOUT = 2.0  # seconds for a hanging process to write down where it hangs
START_TIMEOUT = 60.0  # seconds at least for a process to start and to make its copies
LOOK_S = 0.2  # how soon it is noticed that a process has ended
_OUTPUT_BYTES = 8000  # of the end of its output, told with a failure


class WorkerLostError(Exception):
    """The process died or hangs. It is dead by now.

    what: "died" or "hangs"; why: signal, exit code or time-out; output: the end of what it printed
    """

    def __init__(self, what: str, why: str, output: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what, self.why, self.output = what, why, output


class WorkerTraceback(Exception):
    """Carries the traceback of another process as the cause of an error in this one."""


class WorkerProcess:
    """Runs the copies ``indices`` of ``n`` in a process.

    output: file that gets what it prints
    """

    def __init__(self, make: MakeEnv, indices: range, n: int, output: Path) -> None:
        self._make, self.indices, self._n, self._output = make, indices, n, output
        self.start()

    def start(self) -> None:
        """Start a process; :meth:`greeting` waits until its copies are made."""
        context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads and locks
        self._connection, theirs = context.Pipe()
        self._output.touch()
        self._offset = self._output.stat().st_size
        self._process = context.Process(
            target=run_worker,
            args=(theirs, self._make, self.indices, self._n, self._output),
            name=self._output.stem,
            daemon=True,
        )
        self._process.start()
        monitor_process().kill_group_on_exit(self.pid)
        theirs.close()
        self._started = time.monotonic()

    @property
    def name(self) -> str:
        """``worker_0``, as its output's file is called."""
        return self._output.stem

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process.pid is not None
        return self._process.pid

    def greeting(self, timeout: float) -> WorkerReady:
        """What its copies are. Raises EnvError if they could not be made.

        timeout: seconds, where they are more than START_TIMEOUT; -1 waits for ever
        """
        try:
            limit = max(timeout, START_TIMEOUT) if timeout > 0 else -1
            answer = self._receive(limit, ActiveTime(LOOK_S), lambda: self._started)
        except WorkerLostError as loss:
            raise EnvError(
                f"{self.name} {loss.what} while making its environments",
                where=str(self._output),
                why=f"{loss.why}\n{loss.output}".rstrip(),
                fix="look into that file; with base_config.workers: 0 it runs in the main process",
            ) from loss
        if isinstance(answer, WorkerRefusal):
            self.end(0.0)
            raise answer.error from WorkerTraceback(f"\n{answer.trace}")
        assert isinstance(answer, WorkerReady)
        return answer

    def send(self, command: str, argument: object = ()) -> None:
        """Give a command of :func:`~algorithm.env.pool.worker.run_worker`. Raises WorkerLostError."""
        try:
            self._connection.send((command, argument))
        except OSError:
            raise self._died() from None

    def answer(self, buffers: StepBuffers, timeout: float, ran: ActiveTime) -> list[GroupFailure]:
        """The answer to a command. Raises WorkerLostError.

        timeout: seconds for each call into a copy, of which there may be many
        ran:     counts since the command was given
        """
        rows = slice(self.indices.start, self.indices.stop)
        since = lambda: float(buffers.call_started[rows].max())  # noqa: E731
        return cast("list[GroupFailure]", self._receive(timeout, ran, since))

    def end(self, deadline: float) -> None:
        """Wait until ``deadline`` (time.monotonic) for it to leave, then kill it."""
        self._process.join(max(0.0, deadline - time.monotonic()))
        self._kill()
        self._connection.close()

    def _receive(self, timeout: float, ran: ActiveTime, since: Callable[[], float]) -> object:
        """The next message; ``since()`` is when the call began that is being waited for, 0 for none.

        A pipe does not tell of a process's end where something that it forked still holds it open.
        """
        call, before = -1.0, 0.0
        while not self._connection.poll(LOOK_S):
            truncate_log(self._output)
            now, at = ran.look(), since()
            if at != call:
                call, before = at, now - ran.since(at)
            elif 0 < timeout < now - before:
                raise self._hangs(timeout)
            if self._process.exitcode is not None and not self._connection.poll():
                raise self._died()
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise self._died() from None

    def _died(self) -> WorkerLostError:
        self._process.join(_STACK_TIMEOUT)  # the pipe closes a moment before
        code = self._process.exitcode
        self._kill()
        if code is not None and code < 0:
            why = f"killed by {signal.Signals(-code).name}"
        else:
            why = f"exit code {code}"
        return WorkerLostError("died", why, self._printed())

    def _hangs(self, timeout: float) -> WorkerLostError:
        size = self._output.stat().st_size
        if hasattr(signal, "SIGUSR1"):
            os.kill(self.pid, signal.SIGUSR1)
            deadline = time.monotonic() + _STACK_TIMEOUT
            while self._output.stat().st_size == size and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(0.1)  # for the rest of what it began to write
        self._kill()
        return WorkerLostError(
            "hangs", f"no answer for {timeout:g} s (base_config.env_timeout)", self._printed()
        )

    def _kill(self) -> None:
        self._process.kill()
        self._process.join()
        kill_group(self.pid)
        monitor_process().release_group(self.pid)

    def _printed(self) -> str:
        """The end of what this process printed."""
        with self._output.open("rb") as file:
            size = self._output.stat().st_size
            file.seek(max(self._offset if self._offset <= size else 0, size - _OUTPUT_BYTES))
            return file.read().decode(errors="replace").strip()
