"""Environments that do something to the process they run in: ``Housed-v0``, ``Slow-v0``, ``Chatty-v0``."""

from __future__ import annotations

import ctypes
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from tests.lib.toys import Endless


class Housed(Endless):
    """Has two simulators in processes of their own, and ends them as one should if ``ends``.

    pids: file that gets their ids
    seizes: every step hangs and holds the interpreter's lock
    """

    def __init__(self, pids: str, ends: bool = False, seizes: bool = False) -> None:
        super().__init__()
        self._simulators = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
        self._ends, self._seizes = ends, seizes
        with Path(pids).open("a") as file:
            file.writelines(f"{simulator.pid}\n" for simulator in self._simulators)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        if self._seizes:
            ctypes.PyDLL(None).sleep(600)
        return super().step(action)

    def close(self) -> None:
        for simulator in self._simulators if self._ends else ():
            simulator.terminate()
            simulator.wait()  # for ever, if it ignores that


class Slow(Endless):
    """A step takes ``naps`` of 20 ms, so that a run is nearly always in one; step ``hangs`` hangs, once.

    mark: a file that is there once it has hung
    It leaves a thread that Python would wait for, and cannot be closed, if ``untidy``.
    """

    def __init__(self, naps: int = 1, hangs: int = 0, mark: str = "", untidy: bool = False) -> None:
        super().__init__()
        self._naps, self._hangs, self._mark, self._untidy, self._taken = naps, hangs, Path(mark), untidy, 0
        if untidy:
            threading.Thread(target=time.sleep, args=(600,), name="simulator").start()

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self._taken += 1
        if self._taken == self._hangs and not self._mark.exists():
            self._mark.touch()
            time.sleep(600)
        for _ in range(self._naps):
            time.sleep(0.02)
        return super().step(action)

    def close(self) -> None:
        if self._untidy:
            raise RuntimeError("the door does not close")


class Chatty(Endless):
    """Prints 10 MB in every step."""

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        print("x" * 10_000_000, flush=True)
        return super().step(action)


gym.register("Housed-v0", entry_point=Housed)
gym.register("Slow-v0", entry_point=Slow)
gym.register("Chatty-v0", entry_point=Chatty)
