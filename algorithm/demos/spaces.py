"""Observations by name in the spaces of Gymnasium."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from algorithm.core.data import Array
from algorithm.env.observations import UNNAMED
from algorithm.env.spaces import Space, branches_of, is_leaf, leaves


def in_space(space: Space, obs: Mapping[str, Array]) -> Any:  # noqa: ANN401 - a space may hold anything
    """Convert observations by name, [n, ...] each, to the structure and types of a space."""
    values = iter(
        [_original(leaf.space, obs[leaf.name or UNNAMED]) for leaf in leaves(space, "observation", "")]
    )
    return _nested(space, values)


def _original(space: Space, value: Array) -> NDArray[Any]:
    """Convert an observation to the values and dtype of its space."""
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        return (value.astype(np.int64) + np.asarray(space.start, np.int64)).astype(space.dtype)
    return value.astype(space.dtype)


def _nested(space: Space, values: Iterator[Any]) -> Any:  # noqa: ANN401 - as in_space
    """Build the structure of a space from the values of its leaves, in order."""
    if is_leaf(space):
        return next(values)
    parts = {key: _nested(part, values) for key, part in branches_of(space)}
    return parts if isinstance(space, gym.spaces.Dict) else tuple(parts.values())
