"""A child process as its parent controls it: start, death or hang, last output, end."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from algorithm.core.errors import EnvError
from algorithm.core.system.processes import ending, kill_group, refuse_unguarded, request_stacks, spawn
from algorithm.env.pool.watchdog import ActiveTime
from algorithm.env.pool.worker import WorkerRefusal, truncate_log

_STACK_TIMEOUT = 2.0  # seconds for a hanging process to print its stacks
START_TIMEOUT = 60.0  # seconds at least for a process to start and build its sub-environments
POLL_S = 0.2  # interval at which the end of a process is detected
_OUTPUT_BYTES = 8000  # of the end of its output, part of a failure's message


class WorkerLostError(Exception):
    """A child process that died, or hung and was killed.

    what: "died" or "hangs"; why: signal, exit code or time-out; output: the end of its output
    """

    def __init__(self, what: str, why: str, output: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what, self.why, self.output = what, why, output


class RemoteTracebackError(Exception):
    """The traceback of another process, as the cause of an error in this one."""


class ChildProcess:
    """A child process with a pipe to this one, which ends with it.

    function: called in the process with its end of the pipe, ``arguments`` and ``output``; it calls
              :func:`~algorithm.env.pool.worker.isolate` first
    output:   file for its standard output and error
    alone:    key and value of the configuration that avoid such a process, for messages
    """

    def __init__(
        self, function: Callable[..., None], arguments: tuple[Any, ...], output: Path, *, alone: str
    ) -> None:
        self._function, self._arguments, self._output, self._alone = function, arguments, output, alone
        self.start()

    def start(self) -> None:
        """Start the process; :meth:`first_answer` waits until it is ready."""
        self._connection, theirs = multiprocessing.Pipe()
        self._output.touch()
        self._offset = self._output.stat().st_size
        arguments = (theirs, *self._arguments, self._output)
        self._process = spawn(self._function, arguments, name=self.name, daemon=True)
        theirs.close()
        self._started = time.monotonic()

    @property
    def name(self) -> str:
        """``worker_0``, the name of its output file."""
        return self._output.stem

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process.pid is not None
        return self._process.pid

    def first_answer(self, making: str, timeout: float, waiting: Callable[[str], None]) -> object:
        """Wait for its first message, and return it.

        Raises EnvError if it could not build its environments, UsageError for a script that begins to train
        when it is imported.

        making:  what it builds, for messages
        timeout: seconds, where they are more than START_TIMEOUT; -1 waits for ever
        waiting: called meanwhile, with a text on the progress; an error that it raises ends the wait
        """

        def since() -> float:
            waiting(f"{self.name} makes {making}")
            return self._started

        try:
            limit = max(timeout, START_TIMEOUT) if timeout > 0 else -1
            answer = self.receive(limit, ActiveTime(POLL_S), since)
        except WorkerLostError as loss:
            refuse_unguarded(self._process.exitcode, f", or set {self._alone}")
            raise EnvError(
                f"{self.name} {loss.what} while making its environments",
                where=making,
                why=f"{loss.why}\n{loss.output or 'it printed nothing'}",
                fix=f"set {self._alone}: then they are made in the main process, which shows its errors",
            ) from loss
        return self.checked(answer)

    def checked(self, answer: object) -> object:
        """Return the message ``answer``; for a WorkerRefusal, kill the process and raise the error in it."""
        if isinstance(answer, WorkerRefusal):
            self.end(0.0)
            raise answer.error from RemoteTracebackError(f"\n{answer.trace}")
        return answer

    def send(self, message: object) -> None:
        """Send an object that can be pickled to the process. Raises WorkerLostError if the pipe is broken."""
        try:
            self._connection.send(message)
        except OSError:
            raise self._died() from None

    def receive(self, timeout: float, active: ActiveTime, since: Callable[[], float]) -> object:
        """Return the next message, within ``timeout`` seconds of the current call; -1 waits for ever.

        since: returns the start of that call (time.monotonic), 0 without one

        The end of the process is checked as well: a child of its own may hold the pipe open.
        Raises WorkerLostError.
        """
        call, before = -1.0, 0.0
        while not self._arrived(POLL_S):
            now, at = active.update(), since()
            if at != call:
                call, before = at, now - active.since(at)
            elif 0 < timeout < now - before:
                raise self.hangs(timeout)
        return self._received()

    def _arrived(self, seconds: float) -> bool:
        """Return whether a message is there after so many seconds. Raises WorkerLostError."""
        if self._connection.poll(seconds):
            return True
        truncate_log(self._output)
        if self._process.exitcode is not None and not self._connection.poll():
            raise self._died()
        return False

    def _received(self) -> object:
        """Receive a message. Raises WorkerLostError if the process has ended."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise self._died() from None

    def end(self, deadline: float) -> bool:
        """Wait until ``deadline`` (time.monotonic) for the process to end, then kill it.

        Return whether it had ended by itself.
        """
        self._process.join(max(0.0, deadline - time.monotonic()))
        ended = self._process.exitcode is not None
        self._kill()
        self._connection.close()
        return ended

    def _died(self) -> WorkerLostError:
        """Return the error for a process that has ended, and kill its group."""
        self._process.join(_STACK_TIMEOUT)  # the pipe closes first
        why = ending(self._process.exitcode)
        self._kill()
        return WorkerLostError("died", why, self._printed())

    def hangs(self, timeout: float) -> WorkerLostError:
        """Kill a process that hangs, once it has printed its stacks; return the error to raise."""
        size = self._output.stat().st_size
        if request_stacks(self.pid):
            deadline = time.monotonic() + _STACK_TIMEOUT
            while self._output.stat().st_size == size and time.monotonic() < deadline:
                time.sleep(0.05)
            time.sleep(0.1)  # for the rest of the stacks
        self._kill()
        return WorkerLostError(
            "hangs", f"no answer for {timeout:g} s (base_config.env_timeout)", self._printed()
        )

    def _kill(self) -> None:
        """Kill the process and its group."""
        self._process.kill()
        self._process.join()
        kill_group(self.pid)

    def _printed(self) -> str:
        """Return the end of what this process has printed, as text: at most ``_OUTPUT_BYTES`` bytes.

        What processes before it have printed into the same file is left out.
        """
        with self._output.open("rb") as file:
            size = self._output.stat().st_size
            file.seek(max(self._offset if self._offset <= size else 0, size - _OUTPUT_BYTES))
            return file.read().decode(errors="replace").strip()
