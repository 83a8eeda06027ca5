"""Corridors. Worker processes import this module, so it does not import torch."""

import gymnasium as gym
import numpy as np

from algorithm.env.gym import GymRecipe


class Corridor(gym.Env):
    """A walk to the right end of a corridor of ``length`` places, with a reward of 1 there."""

    action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, length):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(self.length // 2)), 0
        return self._seen(), {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        self.steps += 1
        there = self.place == self.length - 1
        return self._seen(), float(there), there, self.steps >= 4 * self.length, {}

    def _seen(self):
        return np.array([self.place / (self.length - 1)], np.float32)


class CorridorRecipe(GymRecipe):
    """Arguments for building a corridor; ``env_name`` is its length: ``short`` or ``long``."""

    def _build(self, kwargs):
        return Corridor({"short": 6, "long": 12}[self.env_id], **kwargs)
