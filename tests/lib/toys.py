"""Small environments whose data check themselves. Use them by id: ``tests.lib.toys:Counting-v0``."""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym
import numpy as np


class Toy(gym.Env):
    """Counts its steps, observes what ``_seen`` returns, and keeps the seed and options of its episode."""

    observation_space: gym.Space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space: gym.Space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    options: dict[str, Any] | None = None
    _seed = _step = 0

    def __init__(self) -> None:  # without arguments, among them a render mode
        super().__init__()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._seed, self._step, self.options = seed or 0, 0, options
        return self._seen(), self._info()

    def _seen(self) -> Any:
        return np.full(1, self._step, np.float32)

    def _info(self) -> dict[str, Any]:
        return {}


class Counting(Toy):
    """Observes (seed mod 1000, step); the same array every time, changed in place, in float64.

    An episode lasts 3 + seed mod 5 steps and ends terminated for an even seed, truncated for an odd one. The
    reward is the step number plus the first action.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, width: int = 1, low: float = -2.0, high: float = 4.0) -> None:
        self.action_space = gym.spaces.Box(low, high, (width,), np.float32)
        self._obs = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        assert seed is not None
        return super().reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        self._step += 1
        ended, odd = self._step == 3 + self._seed % 5, bool(self._seed % 2)
        return self._seen(), self._step + float(action[0]), ended and not odd, ended and odd, {}

    def _seen(self) -> np.ndarray:
        self._obs[:] = (self._seed % 1000, self._step)
        return self._obs


class Endless(Toy):
    """Never ends; the observation is the step, and the reward prefers actions near one half."""

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        return self._seen(), -float(abs(action[0] - 0.5)), False, False, {}


class Broken(Endless):
    """Fails where ``fails`` says: ``step``, ``reset``, ``shape`` or ``nan`` (a reward from step 5 on)."""

    def __init__(self, fails: str = "step") -> None:
        super().__init__()
        self._fails = fails

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        if self._fails == "reset":
            raise RuntimeError("the door is locked")
        obs, info = super().reset(seed=seed, options=options)
        return (np.zeros(()), info) if self._fails == "shape" else (obs, info)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        if self._fails == "step" and self._step == 3:
            raise RuntimeError("the wheel came off")
        obs, reward, *rest = super().step(action)
        return obs, float("nan") if self._fails == "nan" and self._step > 5 else reward, *rest


class Restless(Endless):
    """What it shows depends on nothing that anybody could repeat."""

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        _, *rest = super().step(action)
        return np.frombuffer(os.urandom(2), np.uint16).astype(np.float32), *rest


class Weighed(Toy):
    """Observes [mass, gravity, wind of the model, pull, last digit of the seed]; ends after 3 steps.

    mass is an option of ``reset``; the reward is the mass, and not finite where that comes to ``breaks``, or
    a step raises there if it ``fails``
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (5,), np.float64)

    def __init__(self, breaks: float = np.inf, *, fails: bool = False) -> None:
        self._breaks, self._fails = breaks, fails
        self.gravity = 9.81
        self.model = type(
            "Model", (), {"wind": np.zeros(3), "name": "weighed", "label": np.array("weighed")}
        )()
        self._pull = self._mass = 0.0

    def set_pull(self, value: float) -> None:
        """A setter."""
        self._pull = value

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        self._mass = (options or {}).get("mass", 0.0)
        return super().reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        if self._fails and self._mass >= self._breaks:
            raise RuntimeError("it has broken")
        reward = np.nan if self._mass >= self._breaks else float(self._mass)
        return self._seen(), reward, False, self._step == 3, {}

    def _seen(self) -> np.ndarray:
        digit = self._seed % 10
        return np.array([self._mass, self.gravity, self.model.wind[1], self._pull, digit], np.float64)


gym.register("Counting-v0", entry_point=Counting)
gym.register("Restless-v0", entry_point=Restless)
gym.register("Endless-v0", entry_point=Endless)
gym.register("Broken-v0", entry_point=Broken)
gym.register("Nested-v0", entry_point="tests.lib.toys_spaces:Nested")
gym.register("Grants-v0", entry_point="tests.lib.toys_spaces:Grants")
gym.register("Film-v0", entry_point="tests.lib.toys_spaces:Film", max_episode_steps=6)
gym.register("Weighed-v0", entry_point=Weighed)
