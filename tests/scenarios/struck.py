"""``Struck-v0``: Pendulum, in a step of which something happens to its process, as ``strike.txt`` says."""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control import PendulumEnv

PLAN = Path("strike.txt")
RUN = Path("models/task/a")


def _hang() -> None:
    Path("hangs").touch()
    time.sleep(600)


def _fill_the_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))


def _remove_the_configuration() -> None:
    (RUN / "config.yaml").unlink()
    raise RuntimeError("the wheel came off")


_STRIKES: dict[str, Callable[[], object]] = {
    "hang": _hang,
    "leave": lambda: sys.exit(0),
    "exit": lambda: os._exit(0),
    "disk full": _fill_the_disk,
    "folder moved": lambda: RUN.rename(RUN.with_name("moved")),
    "configuration removed": _remove_the_configuration,
}


class Struck(PendulumEnv):
    """``strike.txt`` holds the number of a step and what happens in it, a signal or a name of ``_STRIKES``.

    Counted are the steps of all copies in the process; 0 is the making of the first one.
    """

    taken = 0

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _strike(0)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        Struck.taken += 1
        _strike(Struck.taken)
        return super().step(action)


def _strike(step: int) -> None:
    if not PLAN.exists():
        return
    at, _, what = PLAN.read_text().partition(" ")
    if int(at) != step:
        return
    PLAN.unlink()
    if what in _STRIKES:
        _STRIKES[what]()
    else:
        os.kill(os.getpid(), signal.Signals[what])


gym.register("Struck-v0", entry_point=Struck, max_episode_steps=200)
