"""An environment in a file of its user's, which is in no package; and the folder that a user starts from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gymnasium as gym

SOURCE = """\
import gymnasium as gym
import numpy as np

from own_reward import reward


class Own(gym.Env):
    observation_space = gym.spaces.Box(-5.0, 5.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = self.np_random.uniform(-3.0, 3.0), 0
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x, self.t = float(np.clip(self.x + action[0], -5.0, 5.0)), self.t + 1
        return np.array([self.x], np.float32), reward(self.x), False, self.t >= 20, {}
"""
REGISTERED = SOURCE + '\n\ngym.register("Own-v0", Own, max_episode_steps=10)\n'


def write(folder: Path, *, source: str = REGISTERED) -> None:
    """``own_env.py`` and what it imports."""
    folder.mkdir(exist_ok=True)
    (folder / "own_env.py").write_text(source)
    (folder / "own_reward.py").write_text("def reward(x):\n    return -abs(x)\n")


@contextmanager
def fresh_imports() -> Iterator[None]:
    """What is imported, registered and searched inside is forgotten behind it."""
    path, modules, registry = [*sys.path], {*sys.modules}, dict(gym.registry)
    yield
    sys.path[:] = path
    gym.registry.clear()
    gym.registry.update(registry)
    for name in {*sys.modules} - modules:
        if name.startswith(("own_", "env_file_own_")):
            del sys.modules[name]
