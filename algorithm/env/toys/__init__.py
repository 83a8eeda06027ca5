"""Small environments with a known optimum, by id: ``algorithm.env.toys:ToyHybrid-v0``."""

from __future__ import annotations

import gymnasium as gym

_STEP_LIMITS = {"ToyHallway": 50, "ToyCorridor": 120, "ToyMaze": 100, "ToyParking": 60, "ToyBits": 12}
_MODULES = {
    "basic": ("ToyContinuous", "ToyDiscrete", "ToyBranches", "ToyHybrid", "ToyMasked"),
    "exploration": ("ToyCorridor", "ToyMaze", "ToyParking", "ToyBits"),
    "images": ("ToyCatch", "ToyHiddenCatch", "ToyTwoCameras"),
    "memory": ("ToyRecall", "ToyQueue", "ToyHallway"),
}

for _module, _classes in _MODULES.items():
    for _class in _classes:
        gym.register(
            f"{_class}-v0", f"{__name__}.{_module}:{_class}", max_episode_steps=_STEP_LIMITS.get(_class)
        )
