"""Action masks from an observation or an info, as one flat bool array.

A mask is ``obs["action_mask"]`` of a Dict that is the whole observation, or else ``info["action_mask"]``, or
what the method ``action_masks()`` returns (:class:`~algorithm.env.wrappers.MasksInInfos`).

It is flat, [ΣN], or in the structure of the action space, as ``space.sample(mask=…)`` of Gymnasium takes it:
Discrete [n]; MultiDiscrete a tuple of them per axis; MultiBinary 0, 1, or 2 for both, per element; Dict and
Tuple the same per part. None, and a missing key, allow everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from algorithm.core.steps import Array, Bool
from algorithm.env.actions import Actions, branches
from algorithm.env.outputs import SpaceMismatchError, info_of, observation_of
from algorithm.env.spaces import Space, branches_of, is_leaf

MASK = "action_mask"
"""Key of the mask in the observation or the info."""

MASKS_METHOD = "action_masks"
"""Method of an environment that has its mask in neither of them."""

Info = Mapping[str, Any]

RawMask = Any
"""A mask, or a part of one, as environments return it."""


class Masks:
    """A reader of masks for an action space, for one environment or N at once.

    A branch without an allowed choice raises if the agent has to act. Where the task has ended it does not,
    and the usual all-zero mask counts as all allowed.

    observed: masks are part of every observation; else they may be in the info
    All methods raise SpaceMismatchError for a mask that does not fit.
    """

    def __init__(self, space: Space, actions: Actions, *, observed: bool) -> None:
        self._space, self._names, self._observed = space, actions.branch_names, observed
        self._slices = actions.spec.branch_slices
        self._size = actions.spec.discrete
        self._starts = np.array([where.start for where in self._slices], np.int64)

    def read(self, obs: RawMask, info: Info, *, over: bool) -> Bool | None:
        """Return one environment's mask, [ΣN]; None allows everything. over: the task has ended."""
        raw = self._raw_mask(obs, info)
        return None if raw is None else self._fill_empty_branches(self._flat(raw), over)

    def read_batch(self, obs: RawMask, infos: Info, over: Bool) -> Bool | None:
        """Return the masks of N environments from a vector class, [N, ΣN]. over: [N]."""
        raw = self._raw_mask(obs, infos)
        if raw is None:
            return None
        mask = np.ones((len(over), self._size), np.bool_)
        flags = True if self._observed else infos.get(f"_{MASK}", True)
        held = np.broadcast_to(np.asarray(flags, np.bool_), len(over))
        if isinstance(raw, np.ndarray) and raw.dtype != object and raw.shape == mask.shape:
            mask[held] = _as_bools(raw[held], MASK)
            held = np.any(self._empty(mask), axis=1)  # all others are complete
        for i in held.nonzero()[0].tolist():
            mask[i] = self._of_env(raw, i, over[i])
        return mask

    def _raw_mask(self, obs: RawMask, info: Info) -> RawMask:
        """Return the mask as the environment returned it, or those of N environments; None without one."""
        if not self._observed:
            return info.get(MASK)
        try:
            return obs[MASK]
        except (KeyError, TypeError, IndexError) as error:
            raise SpaceMismatchError(
                f"observation {MASK!r} is missing in the environment's output"
            ) from error

    def _of_env(self, raw: RawMask, i: int, over: bool) -> Bool:
        """Return the flat mask of environment i of a vector class."""
        try:
            mask = observation_of(raw, i) if self._observed else info_of(raw, i)
            return self._fill_empty_branches(self._flat(mask), over)
        except (SpaceMismatchError, TypeError, KeyError, IndexError) as error:
            raise SpaceMismatchError(f"environment {i}: {error}") from error

    def _flat(self, raw: RawMask) -> Bool:
        """Return the mask as a new flat array, [ΣN]."""
        if _is_flat(raw, self._size):
            return _as_bools(np.asarray(raw), MASK)
        nested = not isinstance(self._space, gym.spaces.Discrete | gym.spaces.MultiBinary)
        if nested and isinstance(raw, np.ndarray) and raw.ndim < 2 and raw.dtype != object:
            raise SpaceMismatchError(f"{MASK} has {raw.size} entries for {self._size} choices")
        return np.concatenate([np.empty(0, np.bool_), *_flattened(self._space, raw, MASK)])

    def _empty(self, mask: Bool) -> Bool:
        """Return which branches have no choice, [..., ΣN] -> [..., branches]."""
        if not self._size:
            return np.zeros((*mask.shape[:-1], 0), np.bool_)
        empty: Bool = ~np.logical_or.reduceat(mask, self._starts, axis=-1)
        return empty

    def _fill_empty_branches(self, mask: Bool, over: bool) -> Bool:
        """Allow all of a branch that allows no choice, if the task has ended; else raise."""
        for branch in self._empty(mask).nonzero()[0].tolist():
            if not over:
                name = f" ({self._names[branch]})" if self._names[branch] else ""
                raise SpaceMismatchError(f"{MASK} leaves no choice in branch {branch}{name}")
            mask[self._slices[branch]] = True
        return mask


def _is_flat(raw: RawMask, size: int) -> bool:
    """Return whether a mask is a flat array or sequence of ``size`` numbers."""
    if isinstance(raw, np.ndarray):
        return bool(raw.dtype != object and raw.shape == (size,))
    if not isinstance(raw, Sequence) or len(raw) != size:
        return False
    return all(isinstance(entry, int | float | np.generic) for entry in raw)


def _flattened(space: Space, raw: RawMask, name: str) -> Iterator[Bool]:
    """Yield the masks of the leaves of ``space`` in their order, flat.

    name: of this part, for messages
    Raises SpaceMismatchError for another structure.
    """
    if isinstance(space, gym.spaces.Box):
        if raw is not None:
            raise SpaceMismatchError(f"{name} belongs to a Box, which has no choices: it must be None")
    elif not is_leaf(space):
        for (_, part), (label, value) in zip(branches_of(space), _parts(space, raw, name), strict=True):
            yield from _flattened(part, value, label)
    elif raw is None:
        yield np.ones(sum(branches(space)[0]), np.bool_)
    elif isinstance(space, gym.spaces.MultiBinary):
        yield _binary(space, raw, name)
    else:
        counts = space.nvec if isinstance(space, gym.spaces.MultiDiscrete) else branches(space)[0][0]
        yield from _choices(np.asarray(counts), raw, name)


def _parts(space: Space, raw: RawMask, name: str) -> list[tuple[str, RawMask]]:
    """Return label and mask of each part of a Dict or Tuple, in its order."""
    keys = [key for key, _ in branches_of(space)]
    if raw is None:
        return [(name, None)] * len(keys)
    if isinstance(space, gym.spaces.Dict):
        if not isinstance(raw, Mapping) or (unknown := set(raw) - set(keys)):
            what = (
                f"has unknown keys {sorted(map(str, unknown))}"
                if isinstance(raw, Mapping)
                else "is not a mapping"
            )
            raise SpaceMismatchError(f"{name} {what}: the action space has {keys}")
        return [(f"{name}/{key}", raw.get(key)) for key in keys]
    if not isinstance(raw, tuple | list) or len(raw) != len(keys):
        raise SpaceMismatchError(f"{name} is not a tuple of {len(keys)} parts, unlike its action space")
    return [(f"{name}/{key}", raw[key]) for key in keys]


def _choices(counts: Array, raw: RawMask, name: str) -> Iterator[Bool]:
    """Yield the masks of a Discrete or MultiDiscrete with these ``counts``, of any number of axes."""
    if not counts.ndim:
        mask = _as_bools(_array(raw, name), name)
        if mask.shape != (counts,):
            raise SpaceMismatchError(f"{name} has shape {mask.shape} for {counts} choices")
        yield mask
        return
    if not isinstance(raw, Sequence | np.ndarray) or len(raw) != len(counts):
        raise SpaceMismatchError(f"{name} is not a tuple of {len(counts)} masks")
    for i, count in enumerate(counts):
        yield from _choices(np.asarray(count), raw[i], f"{name}[{i}]")


def _binary(space: gym.spaces.MultiBinary, raw: RawMask, name: str) -> Bool:
    """Return the flat mask of a MultiBinary: for each element, whether 0 and 1 are allowed."""
    values = _array(raw, name)
    if values.shape != space.shape or not np.isin(values, (0, 1, 2)).all():
        raise SpaceMismatchError(f"{name} is not an array of 0, 1 and 2 of shape {space.shape}")
    return np.stack([values.ravel() != 1, values.ravel() != 0], 1).ravel()


def _array(raw: RawMask, name: str) -> Array:
    """Return a mask as an array. Raises SpaceMismatchError."""
    try:
        return np.asarray(raw)
    except ValueError as error:
        raise SpaceMismatchError(f"{name} is not an array: {error}") from error


def _as_bools(raw: Array, name: str) -> Bool:
    """Convert zeros and ones to a new bool array. Raises SpaceMismatchError for other values.

    Some masks are added to logits; as bools they would mean the opposite.
    """
    mask: Bool = np.equal(raw, 1)
    if raw.dtype != np.bool_ and not (mask | np.equal(raw, 0)).all():
        raise SpaceMismatchError(f"{name} holds other values than 0 and 1")
    return mask
