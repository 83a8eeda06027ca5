"""How to make a copy as it is, beside the one that a training makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from algorithm.env.gym import GymRecipe
from algorithm.env.wrappers import apply, find


@dataclass(frozen=True, kw_only=True)
class RawRecipe(GymRecipe):
    """A recipe that can leave out the adapter; see :class:`~algorithm.env.gym.GymRecipe`."""

    def raw(self) -> gym.Env[Any, Any]:
        """The environment in its wrappers. Raises EnvError, or UsageError for an unknown wrapper."""
        return apply(self._made(self.env_args), [find(wrapper) for wrapper in self.wrappers])
