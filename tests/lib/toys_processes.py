"""An environment that does something to the process it runs in: ``Slow-v0``."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from tests.lib.toys import Endless


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


gym.register("Slow-v0", entry_point=Slow)
