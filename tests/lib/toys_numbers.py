"""Environments that return numbers as a script says: ``tests.lib.toys_numbers:Numbers-v0``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.env.base import ResetResult, StepResult, VecEnv
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


class Rooms(VecEnv):
    """Two rooms with agents 2k and 2k + 1, who observe (id, step of the room) and go on for ever.

    bad: (step of all, agent) whose reward is NaN
    """

    arrangement = "a house"
    render_modes = ()
    time_limit = None

    def __init__(self, bad: set[tuple[int, int]]) -> None:
        self.specs = {"x": AgentSpec(ObsSpec(("obs",), ((2,),), ("float32",)), ActionSpec(continuous=1))}
        self._bad, self._count = bad, 0
        self._steps = np.zeros(2, np.int64)
        self.resets: list[list[int]] = []

    def reset(self, indices=None, *, episode=None):
        agents = list(range(4))
        if indices is not None:
            self.resets.append(list(indices))
            agents = [i for i in agents if i // 2 in {j // 2 for j in indices}]
        for i in agents:
            self._steps[i // 2] = 0
        return {"x": self._seen(agents)}

    def step(self, actions) -> dict[str, StepResult]:
        self._count += 1
        self._steps += 1
        no = np.zeros(4, np.bool_)
        reward = [np.nan if (self._count, i) in self._bad else 1.0 for i in range(4)]
        return {
            "x": StepResult(
                **{k: v for k, v in vars(self._seen(list(range(4)))).items() if k != "removed"},
                reward=np.array(reward, np.float32),
                terminated=no,
                truncated=no,
            )
        }

    def episode_of(self, agent: int, *, begins: bool) -> str:
        return ""

    def _seen(self, agents: list[int]) -> ResetResult:
        obs = np.array([[i, self._steps[i // 2]] for i in agents], np.float32)
        return ResetResult(
            ids=np.array(agents), obs={"obs": obs}, action_mask=np.zeros((len(agents), 0), np.bool_)
        )
