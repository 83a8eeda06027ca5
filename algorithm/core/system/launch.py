"""Start of a child process that ends with its parent.

``python -I -S launch.py PARENT COMMAND…`` becomes ``COMMAND``. Ray blocks SIGINT in its workers, and a child
inherits that, so the signals are set back first. That the kernel kills the child with its parent survives
``execv`` (prctl(2)). The child leads a process group, so that signals of a terminal do not reach it. It is
written with the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl: the signal to get when the parent dies


def launcher() -> tuple[str, ...]:
    """Return the words to put in front of a command whose process shall end with this one.

    On Linux the kernel kills it when the *thread* that started it ends, so that thread must not end early.
    Elsewhere it ends on its own. It handles signals by default. On Windows there is nothing to put in front.
    """
    return () if not hasattr(os, "setpgid") else (sys.executable, "-I", "-S", __file__, str(os.getpid()))


def main(parent: int, command: list[str]) -> None:
    """Become ``command`` unless ``parent`` is gone already."""
    if sys.platform == "win32":
        raise NotImplementedError  # launcher() is empty there
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(PermissionError):  # it leads a session, and so a group
        os.setpgid(0, 0)
    if os.getppid() != parent:  # it died before the line above
        sys.exit(1)
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
