"""Partial observability: a wrapper that removes elements, so that a policy needs memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray
from typing_extensions import override


class KeepElements(
    gym.ObservationWrapper[NDArray[Any], Any, NDArray[Any]],
    RecordConstructorArgs,
):
    """A wrapper that keeps the listed elements of a vector, in that order.

    By configuration: ``wrappers: [{"algorithm.env.partial_obs:KeepElements": {indices: [0, 2]}}]``.

    indices: from 0
    Raises ValueError for an observation that is not a 1-d Box, and for invalid indices.
    """

    def __init__(self, env: gym.Env[NDArray[Any], Any], indices: Sequence[int]) -> None:
        RecordConstructorArgs.__init__(self, indices=indices)
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
            raise ValueError(f"the observation is {space}; elements can be kept of a Box with one dimension")
        size = space.shape[0]
        if [*indices] != [i for i in indices if type(i) is int and 0 <= i < size]:
            raise ValueError(f"indices is {indices!r}; the elements of this observation are 0 to {size - 1}")
        self._kept = np.array(indices, np.int64)
        dtype: Any = space.dtype
        self.observation_space = gym.spaces.Box(space.low[self._kept], space.high[self._kept], dtype=dtype)

    @override
    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Return the kept elements, [n] -> [len(indices)], as a copy."""
        kept: NDArray[Any] = observation[self._kept]
        return kept
