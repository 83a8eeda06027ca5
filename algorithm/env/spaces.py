"""Gymnasium's spaces as specs, and actions from [-1, 1] to a Box and back."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from algorithm.data import Float
from algorithm.errors import EnvError
from algorithm.spec import ActionSpec, ObsSpec


def obs_spec(space: gym.Space, env: str) -> ObsSpec:
    """The spec of an observation space: a Box of real numbers, stored as float32.

    Raises :class:`EnvError` for any other space.
    """
    is_image = len(space.shape or ()) == 3 and space.dtype == np.uint8
    if not isinstance(space, gym.spaces.Box) or is_image:
        raise EnvError(
            f"observation space {space} is not available in this version",
            where=env,
            why="only a Box of real numbers is",
            fix="use an environment, or a wrapper, with such observations",
        )
    return ObsSpec(("obs",), (space.shape,), ("float32",))


class BoxActions:
    """Maps the flat action u in [-1, 1] affinely to the bounds of a Box.

    Raises :class:`EnvError` for another space and for a Box without finite bounds.
    """

    def __init__(self, space: gym.Space, env: str) -> None:
        if not isinstance(space, gym.spaces.Box):
            raise EnvError(
                f"action space {space} is not available in this version",
                where=env,
                why="only a Box is",
                fix="use an environment with continuous actions",
            )
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise EnvError(
                f"the action space {space} has no finite bounds",
                where=env,
                why="actions live in [-1, 1] and are mapped to the bounds",
                fix="wrap the environment so that its action space is a bounded Box",
            )
        self.spec = ActionSpec(continuous=int(np.prod(space.shape)))
        self._shape, self._dtype = space.shape, space.dtype
        self._low, self._high = space.low.ravel(), space.high.ravel()
        self._centre = (self._high + self._low) / 2
        self._half = (self._high - self._low) / 2

    def to_env(self, action: Float) -> np.ndarray:
        """u [N, A] -> actions [N, *space.shape] in the dtype of the space, never outside it."""
        scaled = np.minimum(np.maximum(self._centre + self._half * action, self._low), self._high)
        return scaled.reshape(len(action), *self._shape).astype(self._dtype, copy=False)
