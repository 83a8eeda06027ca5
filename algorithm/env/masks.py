"""Which choices an environment allows: from its observation or its info, as one flat bool mask.

A mask is given as ``obs["action_mask"]`` of a Dict that is the whole observation, or else as
``info["action_mask"]``; flat, [ΣN], or in the structure of the action space (:mod:`algorithm.env.mask_tree`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np

from algorithm.data import Bool
from algorithm.env.actions import Actions
from algorithm.env.mask_tree import RawMask, as_bools, fill_mask
from algorithm.env.single import SpaceMismatchError
from algorithm.env.spaces import Space
from algorithm.env.vector_info import info_of, observation_of

MASK = "action_mask"
"""Key of the observation, or of the info, that holds the mask."""

Info = Mapping[str, Any]


class MaskSource(Protocol):
    """Where an environment puts its masks."""

    def mask_of(self, obs: RawMask, info: Info) -> RawMask:
        """The mask as it is given; None for none."""
        ...

    def of_env(self, given: RawMask, i: int) -> RawMask:
        """Copy i's share of a mask given for N copies."""
        ...

    def present(self, infos: Info, n: int) -> Bool:
        """Which of the N copies have one, [N]."""
        ...


class InInfo(MaskSource):
    """In the info, where there is one."""

    def mask_of(self, obs: RawMask, info: Info) -> RawMask:
        """See :class:`MaskSource`."""
        return info.get(MASK)

    def of_env(self, given: RawMask, i: int) -> RawMask:
        """See :class:`MaskSource`."""
        return info_of(given, i)

    def present(self, infos: Info, n: int) -> Bool:
        """See :class:`MaskSource`."""
        return np.broadcast_to(np.asarray(infos.get(f"_{MASK}", True), np.bool_), n)


class InObservation(MaskSource):
    """In the observation, always."""

    def mask_of(self, obs: RawMask, info: Info) -> RawMask:
        """See :class:`MaskSource`. Raises SpaceMismatchError."""
        try:
            return obs[MASK]
        except (KeyError, TypeError, IndexError) as error:
            raise SpaceMismatchError(f"observation {MASK!r} is missing in what was returned") from error

    def of_env(self, given: RawMask, i: int) -> RawMask:
        """See :class:`MaskSource`."""
        return observation_of(given, i)

    def present(self, infos: Info, n: int) -> Bool:
        """See :class:`MaskSource`."""
        return np.ones(n, np.bool_)


class Masks:
    """Reads the masks of an action space, of one environment or of N at once.

    A branch without a choice has no meaning where an agent is to act, and is refused; where the task has
    ended nobody acts, and what is often written there, all zeros, counts as all allowed.

    All methods raise SpaceMismatchError for a mask that does not fit.
    """

    def __init__(self, space: Space, actions: Actions, source: MaskSource) -> None:
        self._space, self._names, self._source = space, actions.branch_names, source
        self._slices = actions.spec.branch_slices
        self._size = actions.spec.discrete
        self._starts = np.array([where.start for where in self._slices], np.int64)

    def read(self, obs: RawMask, info: Info, *, over: bool) -> Bool | None:
        """Of one environment, [ΣN]; None where everything is allowed. over: the task has ended."""
        given = self._source.mask_of(obs, info)
        return None if given is None else self._fill_empty_branches(self._flat(given), over)

    def read_batch(self, obs: RawMask, infos: Info, over: Bool) -> Bool | None:
        """Of N environments as a vector class hands them out, [N, ΣN]. over: [N]."""
        given = self._source.mask_of(obs, infos)
        if given is None:
            return None
        mask = np.ones((len(over), self._size), np.bool_)
        held = self._source.present(infos, len(over))
        if isinstance(given, np.ndarray) and given.dtype != object and given.shape == mask.shape:
            mask[held] = as_bools(given[held], MASK)
            held = np.any(self._empty(mask), axis=1)  # all others are done
        for i in held.nonzero()[0].tolist():
            mask[i] = self._of_env(given, i, over[i])
        return mask

    def _of_env(self, given: RawMask, i: int, over: bool) -> Bool:
        try:
            return self._fill_empty_branches(self._flat(self._source.of_env(given, i)), over)
        except (SpaceMismatchError, TypeError, KeyError, IndexError) as error:
            raise SpaceMismatchError(f"copy {i}: {error}") from error

    def _flat(self, given: RawMask) -> Bool:
        """A mask of our own, [ΣN]."""
        if _is_flat(given, self._size):
            return as_bools(np.asarray(given), MASK)
        nested = not isinstance(self._space, gym.spaces.Discrete | gym.spaces.MultiBinary)
        if nested and isinstance(given, np.ndarray) and given.ndim < 2 and given.dtype != object:
            raise SpaceMismatchError(f"{MASK} has {given.size} entries for {self._size} choices")
        mask = np.ones(self._size, np.bool_)
        fill_mask(self._space, given, mask, MASK)
        return mask

    def _empty(self, mask: Bool) -> Bool:
        """Which branches have no choice, [..., ΣN] -> [..., branches]."""
        if not self._size:
            return np.zeros((*mask.shape[:-1], 0), np.bool_)
        empty: Bool = ~np.logical_or.reduceat(mask, self._starts, axis=-1)
        return empty

    def _fill_empty_branches(self, mask: Bool, over: bool) -> Bool:
        """``mask`` [ΣN] with a choice in every branch."""
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
