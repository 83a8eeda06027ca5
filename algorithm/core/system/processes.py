"""Processes: signals, printed stacks, descriptors, ports, the C library."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType
from typing import NoReturn

import psutil

from algorithm.core import system
from algorithm.core.errors import UsageError

KILL = 9
"""Number of SIGKILL, which Windows does not name."""

HUNG_UP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""Signal of a terminal that is closed; None on Windows."""

_BREAK: signal.Signals | None = getattr(signal, "SIGBREAK", None)  # Windows: Ctrl-Break, a closed console
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, *filter(None, (HUNG_UP, _BREAK)))
"""Signals at which a run saves and ends."""

NEW_GROUP: int = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
"""Windows' ``start_new_session``: ``creationflags`` of a process that no signal of a terminal reaches."""

_STACKS: signal.Signals | None = getattr(signal, "SIGUSR1", None)
_CTRL_BREAK: int | None = getattr(signal, "CTRL_BREAK_EVENT", None)
_TRIM, _MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of mallopt(3)
_KEPT, _SEPARATE = 2**28, 2**25  # bytes; the second is the largest that glibc takes
_POLL_S = 0.5
_DESCRIPTORS = Path("/dev/fd")
_CHILD = "asac "  # begins the names of processes that are spawned here
_IMPORTS_ONLY = 96  # their exit code where the import of the script, which comes first, would train or check


def handle_signal(number: int, handler: Callable[[int, FrameType | None], None]) -> None:
    """Set a signal's handler. System calls that the signal interrupts are repeated; none fails with EINTR.

    Compiled simulators may not expect it. Windows interrupts no calls.
    """
    signal.signal(number, handler)
    if hasattr(signal, "siginterrupt"):
        signal.siginterrupt(number, False)


def cpu_seconds() -> float:
    """Return processor seconds, user and system, of this process and its children, ended or not."""
    total = sum(os.times()[:4])
    with contextlib.suppress(psutil.Error, OSError):  # no descriptor is left to ask with
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has just ended
                total += sum(child.cpu_times()[:4])
    return total


def send_signal(pid: int, number: int) -> None:
    """Send a signal to the process that leads a group, and SIGKILL to the whole group.

    On Windows any other signal is Ctrl-Break, at which a run saves and ends, and children of a killed
    process run on. Raises ProcessLookupError.
    """
    if hasattr(os, "killpg"):
        (os.killpg if number == KILL else os.kill)(pid, number)
    else:
        os.kill(pid, signal.SIGTERM if number == KILL or _CTRL_BREAK is None else _CTRL_BREAK)


def spawn(
    function: Callable[..., None], arguments: tuple[object, ...], *, name: str, daemon: bool = False
) -> SpawnProcess:
    """Start a process that calls a function; a fork would inherit torch's threads and locks."""
    leave_import()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=function, args=arguments, name=_CHILD + name, daemon=daemon)
    process.start()
    return process


def leave_import() -> None:
    """Raise SystemExit in a process of :func:`spawn` that is still importing the script of its parent.

    Such an import runs the script again. See :func:`refuse_unguarded`.
    """
    if multiprocessing.current_process().name.startswith(_CHILD) and multiprocessing.parent_process() is None:
        raise SystemExit(_IMPORTS_ONLY)


def refuse_unguarded(code: int | None, alternative: str = "") -> None:
    """Raise UsageError if this is the exit code of a process that :func:`leave_import` has ended."""
    if code == _IMPORTS_ONLY:
        raise UsageError(
            "this script does its work even when it is only imported",
            where=getattr(sys.modules["__main__"], "__file__", ""),
            why="a new process imports it to get its classes",
            fix=f'move its work below `if __name__ == "__main__":`{alternative}',
        ) from None


def ending(code: int | None) -> str:
    """Return ``killed by SIGKILL`` or ``exit code 1``."""
    known = {-number: f"killed by {number.name}" for number in signal.Signals}
    return known.get(code or 0, f"exit code {code}")


def end_with_parent(meanwhile: Callable[[], None] = lambda: None) -> None:
    """Make this spawned process the leader of a new process group, which is killed when its parent ends.

    meanwhile: called twice a second

    A thread kills the group. On Linux the kernel does at once, even while a call holds the GIL: the parent
    holds the other end of a pipe, and its closing is a signal to the group (fcntl(2), O_ASYNC).
    PR_SET_PDEATHSIG would kill this process alone, and what an environment has started would stay.

    Signals from a terminal do not reach the group. The session stays the same: Linux shares processors among
    sessions first (autogroup), and on a loaded machine a worker's answers took twice as long.
    """
    if hasattr(os, "setpgid"):
        with contextlib.suppress(PermissionError):  # it leads a session, and so a group
            os.setpgid(0, 0)
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    arguments = (parent.sentinel, parent.pid, meanwhile)
    threading.Thread(target=_end_with, args=arguments, name="parent watch", daemon=True).start()
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(parent.sentinel, fcntl.F_SETSIG, KILL)
        flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)


def _end_with(sentinel: int, parent: int, meanwhile: Callable[[], None]) -> None:
    """Kill this process and its group when the parent ends; runs in a thread."""
    while not wait([sentinel], _POLL_S) and os.getppid() == parent:  # a fork may hold the pipe open
        meanwhile()
    kill_group(os.getpid())
    os._exit(1)


def kill_group(pid: int) -> None:
    """Kill the rest of the process group that ``pid`` led."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # empty, or only zombies are left
            os.killpg(pid, KILL)


def start_resource_tracker() -> None:
    """Start Python's resource tracker with SIGHUP blocked, so that it survives a closed terminal.

    By itself it ignores SIGINT and SIGTERM alone. Killed by SIGHUP it would be started anew, and print a
    traceback for each shared memory that was registered before.
    """
    if sys.platform == "win32" or HUNG_UP is None:
        return
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {HUNG_UP})  # which it inherits
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def print_stacks_on_request() -> None:
    """Print the stacks of all threads to standard error at a signal of :func:`request_stacks`."""
    if _STACKS is not None and sys.platform != "win32":
        faulthandler.register(_STACKS, file=2, all_threads=True)


def request_stacks(pid: int) -> bool:
    """Make a process print its stacks; return False where no signal does that, as on Windows."""
    if _STACKS is None:
        return False
    os.kill(pid, _STACKS)
    return True


def exit_now(code: int) -> NoReturn:
    """End this process at once, without the interpreter's clean-up; the reason has been printed before."""
    os._exit(code)


def unblock_signals() -> None:
    """Unblock all signals, and restore the defaults of SIGTERM and SIGCHLD that a parent may have changed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform != "win32":  # which has neither
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def open_descriptors() -> list[int]:
    """Return the open descriptors of this process, including that of the listing itself. Raises OSError.

    Windows has no such list: it is empty there.
    """
    if not _DESCRIPTORS.is_dir():
        return []
    with os.scandir(_DESCRIPTORS) as entries:
        return [int(entry.name) for entry in entries]


def allow_descriptors(number: int) -> int:
    """Raise the soft limit of descriptors to ``number`` if possible; return how many of these are allowed.

    A larger limit stays as it is. Sockets have none on Windows.
    """
    try:
        import resource
    except ImportError:  # Windows
        return number
    if sys.platform == "win32":
        return number
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= number:
        return number
    more = number if hard == resource.RLIM_INFINITY else min(number, hard)
    with contextlib.suppress(ValueError, OSError):  # a system's limit may be lower than reported
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def allow_reuse(listener: socket.socket) -> None:
    """Allow a listener to bind a port that a process has just left.

    Windows does so anyway; the option would allow it to take a port in use, so it is not set there.
    """
    if not system.WINDOWS:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def keep_freed_memory() -> None:
    """Keep up to 256 MB of freed memory, instead of giving it back to the system at once.

    An update frees some hundred blocks of 256 KB and allocates them again. If they are given back each time,
    the kernel hands out some 300 empty pages an update, a twentieth of its time. Does nothing without glibc.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM, _KEPT)
        mallopt(_MMAP, _SEPARATE)
