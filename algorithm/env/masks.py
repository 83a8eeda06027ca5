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
"""Method of an environment that has it in neither of them."""

Info = Mapping[str, Any]

RawMask = Any
"""A mask, or a part of one, as environments return it."""


class Masks:
    """A reader of masks for an action space, for one environment or N at once.

    A branch without a choice raises where the agent acts. Where the task has ended nothing acts, and the
    usual all-zero mask counts as all allowed.

    observed: they stand in the observation, always; else in the info, where there is one
    All methods raise SpaceMismatchError for a mask that does not fit.
    """

    def __init__(self, space: Space, actions: Actions, *, observed: bool) -> None:
        self._space, self._names, self._observed = space, actions.branch_names, observed
        self._slices = actions.spec.branch_slices
        self._size = actions.spec.discrete
        self._starts = np.array([where.start for where in self._slices], np.int64)

    def read(self, obs: RawMask, info: Info, *, over: bool) -> Bool | None:
        """Return one environment's mask, [ΣN]; None allows everything. over: the task has ended."""
        given = self._given(obs, info)
        return None if given is None else self._fill_empty_branches(self._flat(given), over)

    def read_batch(self, obs: RawMask, infos: Info, over: Bool) -> Bool | None:
        """Return the masks of N environments from a vector class, [N, ΣN]. over: [N]."""
        given = self._given(obs, infos)
        if given is None:
            return None
        mask = np.ones((len(over), self._size), np.bool_)
        flags = True if self._observed else infos.get(f"_{MASK}", True)
        held = np.broadcast_to(np.asarray(flags, np.bool_), len(over))
        if isinstance(given, np.ndarray) and given.dtype != object and given.shape == mask.shape:
            mask[held] = _as_bools(given[held], MASK)
            held = np.any(self._empty(mask), axis=1)  # all others are complete
        for i in held.nonzero()[0].tolist():
            mask[i] = self._of_env(given, i, over[i])
        return mask

    def _given(self, obs: RawMask, info: Info) -> RawMask:
        """Return the raw mask, or those of N environments; None without one."""
        if not self._observed:
            return info.get(MASK)
        try:
            return obs[MASK]
        except (KeyError, TypeError, IndexError) as error:
            raise SpaceMismatchError(
                f"observation {MASK!r} is missing in the environment's output"
            ) from error

    def _of_env(self, given: RawMask, i: int, over: bool) -> Bool:
        try:
            own = observation_of(given, i) if self._observed else info_of(given, i)
            return self._fill_empty_branches(self._flat(own), over)
        except (SpaceMismatchError, TypeError, KeyError, IndexError) as error:
            raise SpaceMismatchError(f"environment {i}: {error}") from error

    def _flat(self, given: RawMask) -> Bool:
        """Return the mask as a new flat array, [ΣN]."""
        if _is_flat(given, self._size):
            return _as_bools(np.asarray(given), MASK)
        nested = not isinstance(self._space, gym.spaces.Discrete | gym.spaces.MultiBinary)
        if nested and isinstance(given, np.ndarray) and given.ndim < 2 and given.dtype != object:
            raise SpaceMismatchError(f"{MASK} has {given.size} entries for {self._size} choices")
        return np.concatenate([np.empty(0, np.bool_), *_flattened(self._space, given, MASK)])

    def _empty(self, mask: Bool) -> Bool:
        """Return which branches have no choice, [..., ΣN] -> [..., branches]."""
        if not self._size:
            return np.zeros((*mask.shape[:-1], 0), np.bool_)
        empty: Bool = ~np.logical_or.reduceat(mask, self._starts, axis=-1)
        return empty

    def _fill_empty_branches(self, mask: Bool, over: bool) -> Bool:
        """Open branches without a choice where the task has ended; raise elsewhere."""
        for branch in self._empty(mask).nonzero()[0].tolist():
            if not over:
                name = f" ({self._names[branch]})" if self._names[branch] else ""
                raise SpaceMismatchError(f"{MASK} leaves no choice in branch {branch}{name}")
            mask[self._slices[branch]] = True
        return mask


def _is_flat(given: RawMask, size: int) -> bool:
    if isinstance(given, np.ndarray):
        return bool(given.dtype != object and given.shape == (size,))
    if not isinstance(given, Sequence) or len(given) != size:
        return False
    return all(isinstance(one, int | float | np.generic) for one in given)


def _flattened(space: Space, given: RawMask, name: str) -> Iterator[Bool]:
    """Yield the masks of the leaves of ``space`` in their order, flat.

    name: of this part, for messages
    Raises SpaceMismatchError for another structure.
    """
    if isinstance(space, gym.spaces.Box):
        if given is not None:
            raise SpaceMismatchError(f"{name} belongs to a Box, which has no choices: it must be None")
    elif not is_leaf(space):
        for (_, part), (label, value) in zip(branches_of(space), _parts(space, given, name), strict=True):
            yield from _flattened(part, value, label)
    elif given is None:
        yield np.ones(sum(branches(space)[0]), np.bool_)
    elif isinstance(space, gym.spaces.MultiBinary):
        yield _binary(space, given, name)
    else:
        counts = space.nvec if isinstance(space, gym.spaces.MultiDiscrete) else branches(space)[0][0]
        yield from _choices(np.asarray(counts), given, name)


def _parts(space: Space, given: RawMask, name: str) -> list[tuple[str, RawMask]]:
    """Return label and mask of each part of a Dict or Tuple, in its order."""
    keys = [key for key, _ in branches_of(space)]
    if given is None:
        return [(name, None)] * len(keys)
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


def _choices(counts: Array, given: RawMask, name: str) -> Iterator[Bool]:
    """Yield the masks of a Discrete or MultiDiscrete with these ``counts``, of any number of axes."""
    if not counts.ndim:
        mask = _as_bools(_array(given, name), name)
        if mask.shape != (counts,):
            raise SpaceMismatchError(f"{name} has shape {mask.shape} for {counts} choices")
        yield mask
        return
    if not isinstance(given, Sequence | np.ndarray) or len(given) != len(counts):
        raise SpaceMismatchError(f"{name} is not a tuple of {len(counts)} masks")
    for i, count in enumerate(counts):
        yield from _choices(np.asarray(count), given[i], f"{name}[{i}]")


def _binary(space: gym.spaces.MultiBinary, given: RawMask, name: str) -> Bool:
    values = _array(given, name)
    if values.shape != space.shape or not np.isin(values, (0, 1, 2)).all():
        raise SpaceMismatchError(f"{name} is not an array of 0, 1 and 2 of shape {space.shape}")
    return np.stack([values.ravel() != 1, values.ravel() != 0], 1).ravel()


def _array(given: RawMask, name: str) -> Array:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise SpaceMismatchError(f"{name} is not an array: {error}") from error


def _as_bools(given: Array, name: str) -> Bool:
    """Convert zeros and ones to a new bool array. Raises SpaceMismatchError for other values.

    Some masks are added to logits; as bools they would mean the opposite.
    """
    mask: Bool = np.equal(given, 1)
    if given.dtype != np.bool_ and not (mask | np.equal(given, 0)).all():
        raise SpaceMismatchError(f"{name} holds other values than 0 and 1")
    return mask
