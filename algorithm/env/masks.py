"""Action masks from an observation or an info, as one flat bool array.

A mask is ``obs["action_mask"]`` of a Dict that is the whole observation, or else ``info["action_mask"]``;
flat, [ΣN], or in the structure of the action space (:mod:`algorithm.env.mask_tree`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from typing_extensions import override

from algorithm.core.data import Bool
from algorithm.env.actions import Actions
from algorithm.env.mask_tree import RawMask, as_bools, fill_mask
from algorithm.env.single import SpaceMismatchError
from algorithm.env.spaces import Space
from algorithm.env.vector_info import info_of, observation_of

MASK = "action_mask"
"""Key of the mask in the observation or the info."""

Info = Mapping[str, Any]


class MaskSource(Protocol):
    """The place of the masks in an environment's output."""

    def mask_of(self, obs: RawMask, info: Info) -> RawMask:
        """Return the raw mask; None without one."""
        ...

    def of_env(self, mask: RawMask, i: int) -> RawMask:
        """Select sub-environment i from a raw mask of N."""
        ...

    def present(self, infos: Info, n: int) -> Bool:
        """Return which of the N sub-environments have a mask, [N]."""
        ...


class InInfo(MaskSource):
    """Masks in the info, where there is one."""

    @override
    def mask_of(self, obs: RawMask, info: Info) -> RawMask:
        return info.get(MASK)

    @override
    def of_env(self, mask: RawMask, i: int) -> RawMask:
        return info_of(mask, i)

    @override
    def present(self, infos: Info, n: int) -> Bool:
        return np.broadcast_to(np.asarray(infos.get(f"_{MASK}", True), np.bool_), n)


class InObservation(MaskSource):
    """Masks in the observation, always."""

    @override
    def mask_of(self, obs: RawMask, info: Info) -> RawMask:
        try:
            return obs[MASK]
        except (KeyError, TypeError, IndexError) as error:
            raise SpaceMismatchError(
                f"observation {MASK!r} is missing in the environment's output"
            ) from error

    @override
    def of_env(self, mask: RawMask, i: int) -> RawMask:
        return observation_of(mask, i)

    @override
    def present(self, infos: Info, n: int) -> Bool:
        return np.ones(n, np.bool_)


class Masks:
    """A reader of masks for an action space, for one environment or N at once.

    A branch without a choice raises where the agent acts. Where the task has ended nothing acts, and the
    usual all-zero mask counts as all allowed.

    All methods raise SpaceMismatchError for a mask that does not fit.
    """

    def __init__(self, space: Space, actions: Actions, source: MaskSource) -> None:
        self._space, self._names, self._source = space, actions.branch_names, source
        self._slices = actions.spec.branch_slices
        self._size = actions.spec.discrete
        self._starts = np.array([where.start for where in self._slices], np.int64)

    def read(self, obs: RawMask, info: Info, *, over: bool) -> Bool | None:
        """Return one environment's mask, [ΣN]; None allows everything. over: the task has ended."""
        given = self._source.mask_of(obs, info)
        return None if given is None else self._fill_empty_branches(self._flat(given), over)

    def read_batch(self, obs: RawMask, infos: Info, over: Bool) -> Bool | None:
        """Return the masks of N environments from a vector class, [N, ΣN]. over: [N]."""
        given = self._source.mask_of(obs, infos)
        if given is None:
            return None
        mask = np.ones((len(over), self._size), np.bool_)
        held = self._source.present(infos, len(over))
        if isinstance(given, np.ndarray) and given.dtype != object and given.shape == mask.shape:
            mask[held] = as_bools(given[held], MASK)
            held = np.any(self._empty(mask), axis=1)  # all others are complete
        for i in held.nonzero()[0].tolist():
            mask[i] = self._of_env(given, i, over[i])
        return mask

    def _of_env(self, given: RawMask, i: int, over: bool) -> Bool:
        try:
            return self._fill_empty_branches(self._flat(self._source.of_env(given, i)), over)
        except (SpaceMismatchError, TypeError, KeyError, IndexError) as error:
            raise SpaceMismatchError(f"environment {i}: {error}") from error

    def _flat(self, given: RawMask) -> Bool:
        """Return the mask as a new flat array, [ΣN]."""
        if _is_flat(given, self._size):
            return as_bools(np.asarray(given), MASK)
        nested = not isinstance(self._space, gym.spaces.Discrete | gym.spaces.MultiBinary)
        if nested and isinstance(given, np.ndarray) and given.ndim < 2 and given.dtype != object:
            raise SpaceMismatchError(f"{MASK} has {given.size} entries for {self._size} choices")
        mask = np.ones(self._size, np.bool_)
        fill_mask(self._space, given, mask, MASK)
        return mask

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
