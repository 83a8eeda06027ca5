"""An environment that goes wrong in the way it is told: ``Faulty-v0``."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from tests.lib.toys import Toy


def _hang() -> None:
    time.sleep(600)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _exit() -> None:
    print("the licence has expired", flush=True)
    os._exit(7)


def _raise() -> None:
    raise RuntimeError("the wheel came off")


def _leave() -> None:
    raise SystemExit(0)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _fork() -> None:
    """Die, and leave a fork behind that holds every pipe open."""
    if os.fork():
        os._exit(3)
    time.sleep(600)


def _seize() -> None:
    """Hang and keep the interpreter's lock, so that no other thread of the process can run."""
    ctypes.PyDLL(None).sleep(600)


def _block() -> None:
    """Hang in compiled code that no signal interrupts, without the interpreter's lock."""
    library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    for _ in range(2):
        library.pthread_mutex_lock(mutex)


_FAULTS: dict[str, Callable[[], None]] = {
    "hang": _hang,
    "block": _block,
    "die": _die,
    "exit": _exit,
    "raise": _raise,
    "seize": _seize,
    "leave": _leave,
    "interrupt": _interrupt,
    "fork": _fork,
}


class Faulty(Toy):
    """Observes (seed mod 1000, step); an episode lasts 5 steps. Once per ``mark`` it does ``fault``.

    mark:  a file that is created when it happens; while it exists nothing happens
    where: ``make``, ``reset``, ``step`` (the third of an episode) or ``close``
    wide:  one more observation if the mark exists: spaces that change after a restart
    """

    def __init__(self, fault: str, mark: str, where: str = "step", wide: bool = False) -> None:
        self._fault, self._mark, self._where = _FAULTS[fault], Path(mark), where
        self._size = 3 if wide and self._mark.exists() else 2
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (self._size,), np.float32)
        self._meet("make")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        self._meet("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        if self._step == 3:
            self._meet("step")
        return self._seen(), float(self._step), self._step == 5, False, {}

    def close(self) -> None:
        self._meet("close")

    def _seen(self) -> np.ndarray:
        return np.array([self._seed % 1000, self._step, 0][: self._size], np.float32)

    def _meet(self, place: str) -> None:
        if place == self._where:
            with contextlib.suppress(FileExistsError):
                self._mark.touch(exist_ok=False)
                print(f"about to fail in {place}", file=sys.stderr, flush=True)
                self._fault()


gym.register("Faulty-v0", entry_point=Faulty)
