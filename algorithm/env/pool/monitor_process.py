"""What can be done for a process only from outside of it; run as a script, it is the process that does that.

A call that keeps the interpreter's lock stops every thread of its process, so that none of them can end it. A
process that is killed cannot end what it has started. Hence one small process beside it, which loads nothing
but the standard library, holds 10 MB and looks twice a second. There is none on Windows.
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
from functools import cache
from pathlib import Path
from typing import NoReturn

_LOOK_S = 0.5
_STACKS_S = 2.0  # for the stacks to be printed
_BEATS, _ALLOWED = 0, 1  # places in the shared memory, two numbers


class MonitorProcess:
    """The process beside this one. :func:`monitor_process` makes it when it is first asked for."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._shared = memoryview(bytearray(16)).cast("d")
        if sys.platform == "win32":
            return
        if not faulthandler.is_enabled():  # whose stacks are asked for
            faulthandler.enable(2)
        with tempfile.TemporaryFile() as file:
            file.write(bytes(16))  # a hole would be SIGBUS at its first use, were the disk full by then
            file.flush()
            self._shared = memoryview(mmap.mmap(file.fileno(), 16)).cast("d")
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(file.fileno())],
                bufsize=0,  # a signal's handler may write in the middle of another write
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[file.fileno()],
                start_new_session=True,  # what is typed at a terminal, or sent to its group, is not for it
            )

    def beat(self) -> None:
        """Threads of this process run."""
        self._shared[_BEATS] += 1.0

    def watch_call(self, seconds: float) -> None:
        """A call begins that may go on for so long without a beat; 0: it is over, and so is the watch."""
        self._shared[_ALLOWED] = seconds

    def kill_group_on_exit(self, pid: int) -> None:
        """Kill the process group ``pid`` once this process is gone."""
        self._tell(f"+{pid}\n")

    def release_group(self, pid: int) -> None:
        """The group has been ended."""
        self._tell(f"-{pid}\n")

    def run_started(self, what: str) -> None:
        """From now on ``what`` goes on; if this process ends all the same, it is said for it."""
        self._tell(f"!{what}\n")

    def run_finished(self) -> None:
        """From now on it may."""
        self._tell(".\n")

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # somebody killed it: what it would do is not done then
                self._process.stdin.write(line.encode())


@cache
def monitor_process() -> MonitorProcess:
    """The one beside this process."""
    return MonitorProcess()


def exit_now(code: int) -> NoReturn:
    """End this process, which has said why."""
    if monitor_process.cache_info().currsize:
        monitor_process().run_finished()
    os._exit(code)


def become_group_leader() -> None:
    """Make this process the leader of a group of its own, which its children belong to.

    Nothing that a terminal sends reaches them then. It stays in the session: Linux shares processors out
    among sessions first (autogroup), and on a loaded machine answers of a worker took twice as long.
    """
    if hasattr(os, "setpgid"):
        with contextlib.suppress(PermissionError):  # it leads a session, and so a group
            os.setpgid(0, 0)


def kill_group(pid: int) -> None:
    """Kill what is left of the process group that ``pid`` led."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # empty, or only the dead are left
            os.killpg(pid, signal.SIGKILL)


def main(parent: int, memory: int) -> None:
    """Look after the process ``parent`` until it is gone. memory: descriptor of what it shares."""
    shared = memoryview(mmap.mmap(memory, 16, prot=mmap.PROT_READ)).cast("d")
    os.close(memory)
    groups: set[int] = set()
    rest, beats, silent, run = b"", 0.0, 0.0, ""
    while True:
        if select.select([0], [], [], _LOOK_S)[0]:
            told = os.read(0, 4096)
            if not told:
                break
            *lines, rest = (rest + told).split(b"\n")
            for line in lines:
                kind, value = line[:1], line[1:].decode()
                if kind in b"+-":
                    (groups.add if kind == b"+" else groups.discard)(int(value))
                else:
                    run = value
            continue
        if os.getppid() != parent:  # and a fork of it holds the pipe open
            break
        # Counted are this process's own looks: while both are stopped, or the machine sleeps, there are none.
        allowed, latest = shared[_ALLOWED], shared[_BEATS]  # read once: they may change at any moment
        going_on = allowed > 0 and latest == beats and not _is_stopped(parent)
        silent, beats = (silent + _LOOK_S if going_on else 0.0), latest
        if going_on and silent > allowed:
            _end(parent, silent)
            run = ""
            break
    for group in groups:
        kill_group(group)
    if run:
        _say(
            f"{run} has ended without a word",
            where=f"process {parent}",
            why="an environment or a library ended it (os._exit), or the system did (kill -9, out of memory)",
            fix="look into its train.log; --resume goes on from the last checkpoint",
        )


def _end(pid: int, silent: float) -> None:
    _say(
        "the environment hangs and keeps the interpreter's lock",
        where=f"process {pid}; its stacks follow",
        why=f"no answer for {silent:g} s, in which no thread could run, so nothing could be saved",
        fix="set base_config.workers: a worker that hangs is started anew; or raise env_timeout; "
        "--resume goes on from the last checkpoint",
    )
    deadline = time.monotonic() + _STACKS_S
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGABRT)  # faulthandler needs no lock
        while os.getppid() == pid:  # afterwards the number may be another's
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def _say(what: str, *, where: str, why: str, fix: str) -> None:
    """As :func:`algorithm.errors.explain`, which cannot be imported here."""
    with contextlib.suppress(OSError):
        os.write(2, f"error: {what}\n  where  {where}\n  why    {why}\n  to do  {fix}\n".encode())


def _is_stopped(pid: int) -> bool:
    """By a signal or a debugger."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        return state in (b"T", b"t")
    with contextlib.suppress(OSError):  # no such file system; its own command tells, where there is one
        told = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, check=False)
        return told.stdout.strip()[:1] == b"T"
    return False  # it is gone, which the next look shows


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
