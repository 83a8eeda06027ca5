"""Environments that return numbers as a script says: ``tests.lib.toys_numbers:Numbers-v0``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from tests.lib.toys import Toy

Event = tuple[int, int, str, str]
"""Seed of an episode, step in it (0: the reset), ``reward`` or ``obs``, the number as text."""

LENGTH = 5


class Numbers(Toy):
    """Observes (seed mod 10,000, step); an episode lasts ``LENGTH`` steps, for an even seed it is terminated.

    The reward is the step; ``events`` say where another number is returned. ``always``: every reward.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-3.0, 1.0, (1,), np.float32)

    def __init__(self, events: Sequence[Event] = (), always: str = "") -> None:
        self._events = {(seed, step, place): float(number) for seed, step, place, number in events}
        self._always = float(always) if always else None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        assert seed is not None
        return super().reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self._step += 1
        usual = float(self._step) if self._always is None else self._always
        reward = self._events.get((self._seed, self._step, "reward"), usual)
        ended = self._step == LENGTH
        odd = bool(self._seed % 2)
        return self._seen(), reward, ended and not odd, ended and odd, {}

    def _seen(self) -> np.ndarray:
        number = self._events.get((self._seed, self._step, "obs"), float(self._step))
        return np.array([self._seed % 10_000, number], np.float32)


gym.register("Numbers-v0", entry_point=Numbers)
