"""LunarLander with rewards a thousand times as large."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

FACTOR = 1000.0


def make(**arguments: Any) -> gym.Env:
    """LunarLander-v3 with ``FACTOR`` times its reward."""
    return gym.wrappers.TransformReward(
        gym.make("LunarLander-v3", **arguments), lambda reward: FACTOR * float(reward)
    )


gym.register("ScaledLander-v0", make)
