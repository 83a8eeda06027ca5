"""Action masks from an observation or an info, as one flat bool array.

A mask is ``obs["action_mask"]`` of a Dict that is the whole observation, or else ``info["action_mask"]``, or
what the method ``action_masks()`` returns (:class:`~algorithm.env.wrappers.MasksInInfos`).

It is flat, [ΣN]: one entry for each choice of all branches. None, and a missing key, allow everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algorithm.core.steps import Bool
from algorithm.env.actions import Actions
from algorithm.env.outputs import SpaceMismatchError, info_of, observation_of

MASK = "action_mask"
"""Key of the mask in the observation or the info."""

MASKS_METHOD = "action_masks"
"""Method of an environment that has its mask in neither of them."""

_FORM = "one entry for each choice of all branches"

Info = Mapping[str, Any]

RawMask = Any
"""A mask as environments return it."""


class Masks:
    """A reader of masks for actions, for one environment or N at once.

    A branch without an allowed choice raises if the agent has to act. Where the task has ended it does not,
    and the usual all-zero mask counts as all allowed.

    observed: masks are part of every observation; else they may be in the info
    All methods raise SpaceMismatchError for a mask that does not fit.
    """

    def __init__(self, actions: Actions, *, observed: bool) -> None:
        self._observed = observed
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
            mask[held] = _as_bools(raw[held])
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
        """Return the mask as a new array, [ΣN]."""
        try:
            mask = np.asarray(raw)
        except ValueError as error:  # parts of different lengths
            raise SpaceMismatchError(f"{MASK} is not an array, {_FORM}: {error}") from error
        if mask.shape != (self._size,):
            raise SpaceMismatchError(f"{MASK} has shape {mask.shape} for {self._size} choices: it is {_FORM}")
        return _as_bools(mask)

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
                raise SpaceMismatchError(f"{MASK} leaves no choice in branch {branch}")
            mask[self._slices[branch]] = True
        return mask


def _as_bools(raw: NDArray[Any]) -> Bool:
    """Convert zeros and ones to a new bool array. Raises SpaceMismatchError for other values.

    Some masks are added to logits; as bools they would mean the opposite.
    """
    mask: Bool = np.equal(raw, 1).astype(np.bool_)
    if raw.dtype != np.bool_ and not (mask | np.equal(raw, 0)).all():
        raise SpaceMismatchError(f"{MASK} holds other values than 0 and 1")
    return mask
