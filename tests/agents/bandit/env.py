"""Four arms; an episode is ten pulls."""

import time

import gymnasium as gym
import numpy as np


class FourArms(gym.Env):
    """Rewards of 0 or 1; arm 2 pays most often."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(4)
    PAYS = (0.1, 0.3, 0.9, 0.5)

    def __init__(self, pause=0.0):
        self._pause = pause

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = 10
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(self._pause)
        self._left -= 1
        reward = float(self.np_random.random() < self.PAYS[int(action)])
        return np.zeros(1, np.float32), reward, False, self._left == 0, {}
