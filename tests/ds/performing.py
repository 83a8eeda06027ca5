"""What a member of a cluster does in its tests: ``perform`` does what the first override says."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from algorithm.app.cli.ds import DistributedOptions
from algorithm.core.system.processes import exit_now


def perform(options: DistributedOptions) -> int:
    what, *others = options.train.overrides
    return int(globals()[f"_{what}"](others))


def _show(others: list[str]) -> int:
    folder = others[0].partition("=")[2]
    print(Path.cwd(), *sys.argv, folder, threading.current_thread() is threading.main_thread())
    print(
        *(f"{Path(path).stat().st_mode:o}" for path in (folder, f"{folder}/token")),
        Path(folder, "token").read_text(),
    )
    print([name for name in os.environ if name.startswith("RAY_")])
    os.write(2, b"last")
    return 6


def _raise(others: list[str]) -> int:
    raise SystemExit("out")


def _leave(others: list[str]) -> int:
    """As a watchdog does where an environment hangs."""
    threading.Thread(target=exit_now, args=(4,)).start()
    time.sleep(60.0)
    return 0


def _crash(others: list[str]) -> int:
    os.write(1, b"before\n")
    time.sleep(0.2)
    os.write(2, b"the end")
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def _wait(others: list[str]) -> int:
    got: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: got.append(number))
    Path("up").touch()
    while not got:
        signal.pause()
    return 128 + got[0]
