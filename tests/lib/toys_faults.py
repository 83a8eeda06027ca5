"""Environments that go wrong in the way they are told: ``Faulty-v0``, ``Untrue-v0``, ``Fickle-v0``."""

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


def _exit() -> None:
    print("the licence has expired", flush=True)
    os._exit(7)


def _fork() -> None:
    """Die, and leave a fork behind that holds every pipe open."""
    if os.fork():
        os._exit(3)
    time.sleep(600)


def _block() -> None:
    """Hang in compiled code that no signal interrupts, without the interpreter's lock."""
    library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    for _ in range(2):
        library.pthread_mutex_lock(mutex)


_FAULTS: dict[str, Callable[[], object] | BaseException] = {
    "hang": lambda: time.sleep(600),
    "block": _block,
    "die": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "exit": _exit,
    "raise": RuntimeError("the wheel came off"),
    "seize": lambda: ctypes.PyDLL(None).sleep(600),  # no other thread of the process can run
    "leave": SystemExit(0),
    "interrupt": KeyboardInterrupt(),
    "fork": _fork,
}
"""What is done, or raised."""


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
                if isinstance(self._fault, BaseException):
                    raise self._fault
                self._fault()


class Fickle(Toy):
    """Observes (copy, step, 0), the copy as its seed ``diary_seed`` says; an episode lasts 9 steps.

    Copy 1 does not always do the same again. ``how``:

    entropy, life: instead of 0 it observes the system's noise, or the steps of its whole life
    zero, reward, end, mask, fail: in the second episode since it was made it observes −0, is given one more,
        ends with the second step, forbids a choice, raises in the second step
    nan: no, but all there is to see in any copy is NaN
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, how: str) -> None:
        self._how, self._life, self._resets, self._copy = how, 0, 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        self._copy = (seed or 0) // 1000
        self._resets += 1
        return super().reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        self._life += 1
        second = self._step == 2
        if second and self._is("fail"):
            raise RuntimeError("the second time is the worse")
        reward = float(self._step + self._is("reward"))
        return self._seen(), reward, self._step == 9, second and self._is("end"), self._info()

    def _is(self, how: str) -> bool:
        return self._how == how and self._copy == 1 and self._resets == 2

    def _seen(self) -> np.ndarray:
        extra = -0.0 if self._is("zero") else 0.0
        if self._copy == 1 and self._how == "entropy":
            extra = int.from_bytes(os.urandom(4), "little")
        if self._copy == 1 and self._how == "life":
            extra = self._life
        seen = np.array([self._copy, self._step, extra], np.float32)
        return seen * np.float32("nan") if self._how == "nan" else seen

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.array([1, 1, not self._is("mask")], np.int8)}


gym.register("Faulty-v0", entry_point=Faulty)
gym.register("Fickle-v0", entry_point=Fickle)
