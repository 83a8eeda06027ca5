"""Atari 2600 games: a wrapper for those that wait for a button."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs
from typing_extensions import override


class PressFire(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A wrapper that begins each episode with FIRE and the action behind it (Mnih et al. 2015).

    Some games do not begin before, and a policy that never presses the button would learn nothing. A game
    without the button is left alone. Rewards of the two actions are not counted.

    By configuration, behind ``AtariPreprocessing``: ``wrappers: ["algorithm.env.atari:PressFire"]``.
    Raises ValueError for an environment that is no Atari game.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        meanings = getattr(env.unwrapped, "get_action_meanings", None)
        if meanings is None:
            raise ValueError(f"{env.unwrapped} is no Atari game, so it has no button to press")
        names = meanings()
        fire = names.index("FIRE") if "FIRE" in names else None
        self._actions = () if fire is None or len(names) <= fire + 1 else (fire, fire + 1)

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Begin an episode, which an end during the two actions begins anew."""
        obs, info = self.env.reset(seed=seed, options=options)
        for action in self._actions:
            obs, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                obs, info = self.env.reset(options=options)
        return obs, info

    @override
    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Pass the step on."""
        return self.env.step(action)
