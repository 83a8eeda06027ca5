"""Toys that hurt their process or change: ``Housed-v0``, ``Chatty-v0``, ``Untrue-v0``, ``Fickle-v0``."""

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from tests.lib.toys import Endless, Toy


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


gym.register("Fickle-v0", entry_point=Fickle)


class Untrue(Toy):
    """Environment whose output in step ``at``, 0 for a reset, does not fit its space: ``how``."""

    observation_space = gym.spaces.Dict(
        speed=gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
        gear=gym.spaces.Discrete(3),
        camera=gym.spaces.Box(0, 255, (2, 2), np.uint8),
    )

    def __init__(self, how: str, at: int) -> None:
        self._how, self._at = how, at

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        now = self._step == self._at
        reward: Any = {"reward": "1.5", "complex reward": 1j}.get(self._how, 0.0) if now else 0.0
        ends = {"terminated": ("False", False), "truncated": (False, ""), "undefined": (np.nan, False)}
        terminated, truncated = ends.get(self._how if now else "", (False, False))
        return self._seen(), reward, terminated, truncated, {}

    def _seen(self) -> dict[str, Any]:
        seen: dict[str, Any] = {
            "speed": np.zeros(2, np.float32),
            "gear": 2,
            "camera": np.zeros((2, 2), np.uint8),
        }
        if self._step == self._at:
            seen |= {
                "shape": {"speed": np.zeros(3, np.float32)},
                "broadcast": {"camera": np.zeros((1, 2), np.uint8)},
                "nothing": {"speed": None},
                "text": {"speed": np.array(["fast", "slow"])},
                "fraction": {"gear": 1.5},
                "choice": {"gear": 3},
                "overflow": {"camera": np.full((2, 2), 256)},
                "complex": {"speed": np.array([1j, 0])},
                "object": {"speed": np.array([0.5, 1.0], object)},
                "ragged": {"speed": [[1.0], [1.0, 2.0]]},
                "object of whole numbers": {"camera": np.zeros((2, 2), object)},
            }.get(self._how, {})
            if self._how == "missing":
                del seen["gear"]
        return seen


gym.register("Untrue-v0", entry_point=Untrue)


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


class Chatty(Endless):
    """Prints 10 MB in every step."""

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        print("x" * 10_000_000, flush=True)
        return super().step(action)


gym.register("Housed-v0", entry_point=Housed)


gym.register("Chatty-v0", entry_point=Chatty)
