"""Masks in the structure of their action space, as ``space.sample(mask=…)`` of Gymnasium takes them.

Discrete [n]; MultiDiscrete a tuple of them per axis; MultiBinary 0, 1, or 2 for both, per element; Dict and
Tuple the same per part. None, and a missing key, allow everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from algorithm.core.data import Array, Bool
from algorithm.env.actions import branches
from algorithm.env.single import SpaceMismatchError
from algorithm.env.spaces import Space, branches_of, is_leaf

RawMask = Any
"""A mask, or a part of one, as environments return it."""


def fill_mask(space: Space, given: RawMask, out: Bool, name: str) -> int:
    """Write the mask of ``space`` into the beginning of ``out``, which is all true.

    name: of this part, for messages

    Returns its number of entries. Raises SpaceMismatchError for another structure.
    """
    if given is None or isinstance(space, gym.spaces.Box):
        if given is not None:
            raise SpaceMismatchError(f"{name} belongs to a Box, which has no choices: it must be None")
        return _width(space)
    if not is_leaf(space):
        done = 0
        for (_, part), (label, value) in zip(branches_of(space), _parts(space, given, name), strict=True):
            done += fill_mask(part, value, out[done:], label)
        return done
    if isinstance(space, gym.spaces.MultiBinary):
        return _fill_binary(space, given, out, name)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return _fill_choices(space.nvec, given, out, name)
    return _fill_choices(np.array(branches(space)[0][0]), given, out, name)


def _parts(space: Space, given: RawMask, name: str) -> list[tuple[str, RawMask]]:
    """Return label and mask of each part of a Dict or Tuple, in its order."""
    keys = [key for key, _ in branches_of(space)]
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(given, Mapping) or (unknown := set(given) - set(keys)):
            what = (
                f"has unknown keys {sorted(map(str, unknown))}"
                if isinstance(given, Mapping)
                else "is not a mapping"
            )
            raise SpaceMismatchError(f"{name} {what}: the action space has {keys}")
        return [(f"{name}/{key}", given.get(key)) for key in keys]
    if not isinstance(given, tuple | list) or len(given) != len(keys):
        raise SpaceMismatchError(f"{name} is not a tuple of {len(keys)} parts, unlike its action space")
    return [(f"{name}/{key}", given[key]) for key in keys]


def _fill_choices(counts: Array, given: RawMask, out: Bool, name: str) -> int:
    """Write the mask of a Discrete or MultiDiscrete with these ``counts``, of any number of axes."""
    if counts.ndim:
        if not isinstance(given, Sequence | np.ndarray) or len(given) != len(counts):
            raise SpaceMismatchError(f"{name} is not a tuple of {len(counts)} masks")
        done = 0
        for i, count in enumerate(counts):
            done += _fill_choices(np.asarray(count), given[i], out[done:], f"{name}[{i}]")
        return done
    n = int(counts)
    mask = as_bools(_array(given, name), name)
    if mask.shape != (n,):
        raise SpaceMismatchError(f"{name} has shape {mask.shape} for {n} choices")
    out[:n] = mask
    return n


def _fill_binary(space: gym.spaces.MultiBinary, given: RawMask, out: Bool, name: str) -> int:
    values = _array(given, name)
    if values.shape != space.shape or not np.isin(values, (0, 1, 2)).all():
        raise SpaceMismatchError(f"{name} is not an array of 0, 1 and 2 of shape {space.shape}")
    pairs = np.stack([values.ravel() != 1, values.ravel() != 0], 1)
    out[: pairs.size] = pairs.ravel()
    return pairs.size


def _array(given: RawMask, name: str) -> Array:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise SpaceMismatchError(f"{name} is not an array: {error}") from error


def as_bools(given: Array, name: str) -> Bool:
    """Convert zeros and ones to a new bool array. Raises SpaceMismatchError for other values.

    Some masks are added to logits; as bools they would mean the opposite.
    """
    mask: Bool = np.equal(given, 1)
    if given.dtype != np.bool_ and not (mask | np.equal(given, 0)).all():
        raise SpaceMismatchError(f"{name} holds other values than 0 and 1")
    return mask


def _width(space: Space) -> int:
    if isinstance(space, gym.spaces.Box):
        return 0
    if is_leaf(space):
        return sum(branches(space)[0])
    return sum(_width(part) for _, part in branches_of(space))
