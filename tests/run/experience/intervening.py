"""Environments with a scripted person, whose observations hold the action that was executed before."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space

SPACES: dict[str, Space] = {
    "continuous": Box(-2.0, 3.0, (2,)),
    "discrete": Discrete(4, start=-1),
    "hybrid": Dict({"grip": Discrete(3), "move": Box(-1.0, 1.0, (3,))}),
}


def numbers(action: Any) -> list[float]:
    """The numbers of an action, in the order of its space."""
    if isinstance(action, dict):
        return [number for key in sorted(action) for number in numbers(action[key])]
    return np.ravel(action).astype(float).tolist()


class Intervening(gym.Env):
    """A person acts in a third of the steps; the observation is what was executed, and whether by the person.

    kind:  of the actions
    style: what the infos report: ``taken`` the action of every step, ``person`` a flag in every step and the
           person's action, ``rare`` both in steps of the person only. The info of a reset still has the flag
    """

    def __init__(self, kind: str = "continuous", style: str = "taken") -> None:
        self.action_space, self.style = SPACES[kind], style
        self.size = len(numbers(self.action_space.sample()))
        self.observation_space = Box(-np.inf, np.inf, (self.size + 1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        if seed is not None:
            self.action_space.seed(seed)
        self.steps = self.helped = 0
        before = {"is_intervention": True, "teleop_action": self.action_space.sample()}
        return np.zeros(self.size + 1), {} if self.style == "taken" else before

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.steps += 1
        by_person = self.np_random.random() < 1 / 3
        self.helped += by_person
        executed = self.action_space.sample() if by_person else action
        info: dict[str, Any] = {}
        if self.style == "taken":
            info["action_taken"] = executed
        elif self.style == "person" or by_person:
            info["is_intervention"] = by_person
            if by_person:
                info["teleop_action"] = executed
        info["helped"] = self.helped / self.steps
        seen = np.array([*numbers(executed), by_person])
        return seen, 1.0, False, bool(self.np_random.random() < 0.1), info


class Silent(Intervening):
    """Forgets to report the person's action."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        *result, info = super().step(action)
        info.pop("teleop_action", None)
        return (*result, info)


gym.register("Intervening-v0", Intervening)
