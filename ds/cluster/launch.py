"""Run as a script: becomes another program, which then ends when the process that started it does.

``python -I -S launch.py PARENT COMMAND…``. Ray blocks SIGINT in its workers, and a child inherits that, so
the signals are set back first. That the kernel kills the child with its parent survives ``execv`` (prctl(2)).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # prctl: the signal to get when the parent dies


def main(parent: int, command: list[str]) -> None:
    """Become ``command`` unless ``parent`` is gone already."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
