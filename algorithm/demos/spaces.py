"""Conversion between Gymnasium's spaces and recordings: actions to flat ones, arrays by name to observations.

The inverses of :class:`~algorithm.env.actions.Actions` and :class:`~algorithm.env.observations.Observations`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from algorithm.core.data import Array, Float
from algorithm.env.actions import branches
from algorithm.env.observations import UNNAMED
from algorithm.env.outputs import SpaceMismatchError
from algorithm.env.spaces import Leaf, Space, branches_of, is_leaf, leaves


def flat_actions(space: Space, actions: Any, n: int) -> Float:  # noqa: ANN401 - a space may hold anything
    """Convert n actions of a space, stored leaf by leaf [n, ...], to flat ones [n, A].

    A number beyond the bounds of a Box stays beyond ±1. Raises SpaceMismatchError for a wrong structure,
    shape or type, and for a value that is no choice; EnvError for an unsupported space.
    """
    one_hots: list[Array] = []
    numbers: list[Array] = []
    for leaf in leaves(space, "action", "the data set"):
        value = _values(leaf, actions, n)
        if isinstance(leaf.space, gym.spaces.Box):
            numbers.append(_scaled(leaf.space, value))
        else:
            one_hots += _one_hots(leaf, value)
    return np.concatenate([*one_hots, *numbers], axis=1, dtype=np.float32, casting="unsafe")


def _values(leaf: Leaf, actions: Any, n: int) -> NDArray[Any]:  # noqa: ANN401 - a space may hold anything
    """Return the numbers of a leaf, [n, size]."""
    name, value = _shown(leaf), actions
    try:
        for key in leaf.path:
            value = value[key]
        array = np.asarray(value)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise SpaceMismatchError(f"{name} is missing, or is not an array: {error}") from error
    expected = (n, *(leaf.space.shape or ()))
    if array.shape != expected or array.dtype.kind not in "fiub":
        raise SpaceMismatchError(f"{name} is {array.dtype} {list(array.shape)}, not numbers {list(expected)}")
    return array.reshape(n, -1)


def _scaled(box: gym.spaces.Box, value: NDArray[Any]) -> NDArray[np.float64]:
    """Map values of a Box to u in [-1, 1]; 0 where its bounds leave a single value."""
    low, high = (
        end.ravel() if end.dtype.kind == "f" else end.ravel().astype(np.float64)
        for end in (box.low, box.high)
    )
    centre, half = ((high / 2 + sign * (low / 2)).astype(np.float64) for sign in (1, -1))
    if not (np.isfinite(half).all() and np.isfinite(centre).all()):
        raise SpaceMismatchError(f"the action {box} has no finite bounds")
    shifted = value.astype(np.float64) - centre
    return np.divide(shifted, half, out=np.zeros_like(shifted), where=half > 0)


def _one_hots(leaf: Leaf, value: NDArray[Any]) -> Iterator[Float]:
    """Yield the one-hots of each branch, [n, choices]."""
    for column, (count, start) in zip(value.T, zip(*branches(leaf.space), strict=True), strict=True):
        known = np.arange(start, start + count)
        hot = column[:, None] == known
        if not hot.any(1).all():
            wrong = column[~hot.any(1)][0]
            raise SpaceMismatchError(f"{_shown(leaf)} holds {wrong}, its space has {start} to {known[-1]}")
        yield hot.astype(np.float32)


def _shown(leaf: Leaf) -> str:
    """Return the name of an action, for messages."""
    return f"action {leaf.name!r}" if leaf.name else "the action"


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
