"""A process that ends this one if a call hangs and holds the GIL; run as a script, it is that process.

Such a call stops every thread, so none of them can end the process. ``faulthandler.dump_traceback_later``
could, but it goes by the clock: it would end a run that was suspended (SIGSTOP, a debugger, a frozen
container) once it goes on. So polls of another process are counted: standard library only, 10 MB. There is
none on Windows.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

_POLL_S = 0.5
_STACKS_S = 2.0  # for printing the stacks
_UNREAD_BYTES = 2**16  # that a pipe holds


class MonitorProcess:
    """The parent's end of the monitor. :func:`monitor_process` starts it at its first use."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if not hasattr(os, "killpg"):
            return
        if not faulthandler.is_enabled():  # prints the stacks at SIGABRT
            faulthandler.enable(2)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # signals to the terminal's group do not reach it
        )

    def beat(self, name: str, seconds: float) -> None:
        """Report that this process still runs its threads, and set the limit for the next report.

        name:    environment that the error names if the next report is late
        seconds: counted while this process is not stopped; 0 for no limit
        """
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it was killed; the run continues without it
                self._process.stdin.write(f"{seconds} {name}\n".encode())


@cache
def monitor_process() -> MonitorProcess:
    """Return the monitor of this process."""
    return MonitorProcess()


def main(parent: int) -> None:
    """Monitor the process ``parent`` until it is gone."""
    seconds, name, silent = 0.0, "", 0.0
    while os.getppid() == parent:  # a fork may hold the pipe open
        # Polls are counted, not the clock: there are none while both are stopped or the machine sleeps.
        if select.select([0], [], [], _POLL_S)[0]:
            if not (received := os.read(0, _UNREAD_BYTES)):
                break
            latest, _, name = received.decode().splitlines()[-1].partition(" ")
            seconds, silent = float(latest), 0.0
        elif seconds and not _is_stopped(parent):
            silent += _POLL_S
            if silent > seconds:
                _end(parent, name, silent)
                break


def _end(pid: int, name: str, silent: float) -> None:
    """Print the error as :func:`algorithm.core.errors.explain` would, and end the process with its stacks."""
    message = (
        f"error: {name} hangs and holds the interpreter's lock\n"
        f"  where  it, or other code of process {pid}; its stacks follow\n"
        f"  why    no answer for {silent:g} s, in which no thread could run, so nothing could be saved\n"
        "  to do  set base_config.workers: a worker that hangs is replaced; or raise env_timeout; "
        "--resume continues from the last checkpoint\n"
    )
    with contextlib.suppress(OSError):
        os.write(2, message.encode())
    if sys.platform == "win32":  # MonitorProcess starts none there
        return
    deadline = time.monotonic() + _STACKS_S
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGABRT)  # faulthandler needs no GIL
        while os.getppid() == pid:  # afterwards the pid may be reused
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


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
    main(os.getppid())
