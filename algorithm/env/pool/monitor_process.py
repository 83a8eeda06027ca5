"""A process beside the main one for what a process cannot do for itself; run as a script, that process.

A call that holds the GIL stops every thread, so none of them can end the process. A process that is killed
cannot end its children. Hence a small second process: standard library only, 10 MB, two checks a second.
There is none on Windows.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NoReturn

_POLL_S = 0.5
_STACKS_S = 2.0  # for printing the stacks
_BEATS, _ALLOWED = 0, 1  # places in the shared memory of two numbers


class MonitorProcess:
    """The parent's side. :func:`monitor_process` starts it at its first use."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._shared = memoryview(bytearray(16)).cast("d")
        if not hasattr(os, "killpg"):
            return
        if not faulthandler.is_enabled():  # prints the stacks at SIGABRT
            faulthandler.enable(2)
        with tempfile.TemporaryFile() as file:
            file.write(bytes(16))  # on a full disk a hole would raise SIGBUS at its first use
            file.flush()
            self._shared = memoryview(mmap.mmap(file.fileno(), 16)).cast("d")
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(file.fileno())],
                bufsize=0,  # a signal handler may interrupt a write
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[file.fileno()],
                start_new_session=True,  # signals to the terminal's group do not reach it
            )

    def beat(self) -> None:
        """Report that threads of this process run."""
        self._shared[_BEATS] += 1.0

    def watch_call(self, seconds: float) -> None:
        """Allow a call this many seconds without a heartbeat; 0 ends the watch."""
        self._shared[_ALLOWED] = seconds

    def kill_group_on_exit(self, pid: int) -> None:
        """Kill the process group ``pid`` once this process is gone."""
        self._send(f"+{pid}\n")

    def release_group(self, pid: int) -> None:
        """Remove a group that has ended."""
        self._send(f"-{pid}\n")

    def run_started(self, what: str) -> None:
        """Announce ``what``; an end of this process before :meth:`run_finished` is then reported."""
        self._send(f"!{what}\n")

    def run_finished(self) -> None:
        """Withdraw the announcement."""
        self._send(".\n")

    def _send(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it was killed; the run continues without it
                self._process.stdin.write(line.encode())


@cache
def monitor_process() -> MonitorProcess:
    """Return the monitor of this process."""
    return MonitorProcess()


_BEFORE_EXIT: list[Callable[[int], object]] = []


def before_exit(call: Callable[[int], object]) -> None:
    """Have ``call`` told the exit code before :func:`exit_now` ends this process."""
    _BEFORE_EXIT.append(call)


def exit_now(code: int) -> NoReturn:
    """End this process, which has reported why."""
    for call in _BEFORE_EXIT:
        call(code)
    if monitor_process.cache_info().currsize:
        monitor_process().run_finished()
    os._exit(code)


def become_group_leader() -> None:
    """Make this process the leader of a new process group, to which its children belong.

    Signals from a terminal do not reach them. The session stays the same: Linux shares processors among
    sessions first (autogroup), and on a loaded machine a worker's answers took twice as long.
    """
    if hasattr(os, "setpgid"):
        with contextlib.suppress(PermissionError):  # it leads a session, and so a group
            os.setpgid(0, 0)


def kill_group(pid: int) -> None:
    """Kill the rest of the process group that ``pid`` led."""
    if hasattr(os, "killpg") and hasattr(signal, "SIGKILL"):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # empty, or only zombies are left
            os.killpg(pid, signal.SIGKILL)


def main(parent: int, memory: int) -> None:
    """Monitor the process ``parent`` until it is gone. memory: descriptor of the shared memory."""
    shared = memoryview(mmap.mmap(memory, 16, access=mmap.ACCESS_READ)).cast("d")
    os.close(memory)
    groups: set[int] = set()
    rest, beats, silent, run = b"", 0.0, 0.0, ""
    while True:
        if select.select([0], [], [], _POLL_S)[0]:
            received = os.read(0, 4096)
            if not received:
                break
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                kind, value = line[:1], line[1:].decode()
                if kind in b"+-":
                    (groups.add if kind == b"+" else groups.discard)(int(value))
                else:
                    run = value
            continue
        if os.getppid() != parent:  # a fork may still hold the pipe open
            break
        # Polls are counted, not the clock: there are none while both are stopped or the machine sleeps.
        allowed, latest = shared[_ALLOWED], shared[_BEATS]  # read once: they may change meanwhile
        going_on = allowed > 0 and latest == beats and not _is_stopped(parent)
        silent, beats = (silent + _POLL_S if going_on else 0.0), latest
        if going_on and silent > allowed:
            _end_parent(parent, silent)
            run = ""
            break
    for group in groups:
        kill_group(group)
    if run:
        _print_error(
            f"{run} has ended without a message",
            where=f"process {parent}",
            why="an environment or a library ended it (os._exit), or the system did (kill -9, out of memory)",
            fix="see its train.log; --resume continues from the last checkpoint",
        )


def _end_parent(pid: int, silent: float) -> None:
    _print_error(
        "the environment hangs and holds the interpreter's lock",
        where=f"process {pid}; its stacks follow",
        why=f"no answer for {silent:g} s, in which no thread could run, so nothing could be saved",
        fix="set base_config.workers: a worker that hangs is replaced; or raise env_timeout; "
        "--resume continues from the last checkpoint",
    )
    if sys.platform == "win32":  # MonitorProcess starts none there
        return
    deadline = time.monotonic() + _STACKS_S
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGABRT)  # faulthandler needs no GIL
        while os.getppid() == pid:  # afterwards the pid may be reused
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def _print_error(what: str, *, where: str, why: str, fix: str) -> None:
    """Print in the format of :func:`algorithm.core.errors.explain`, which cannot be imported here."""
    with contextlib.suppress(OSError):
        os.write(2, f"error: {what}\n  where  {where}\n  why    {why}\n  to do  {fix}\n".encode())


def _is_stopped(pid: int) -> bool:
    """Return whether a signal or a debugger has stopped the process."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        return state in (b"T", b"t")
    with contextlib.suppress(OSError):  # no /proc: ask ps, where there is one
        result = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, check=False)
        return result.stdout.strip()[:1] == b"T"
    return False  # it is gone, as the next poll shows


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
