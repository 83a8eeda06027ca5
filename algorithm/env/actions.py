"""Flat actions as actions of a gymnasium space.

Every discrete leaf of the space, in the order of its tree, has branches: Discrete one, MultiDiscrete and
MultiBinary one per element. After their one-hots comes u in [-1, 1] of every Box leaf, mapped affinely to its
bounds; in a Box of integers the result is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from algorithm.core.errors import EnvError
from algorithm.core.spec import ActionSpec
from algorithm.core.steps import Float
from algorithm.env.spaces import Leaf, Space, branches_of, is_leaf, leaves

Choices = NDArray[np.int64]
"""The values chosen in all branches, [branches] or [branches, N]: a column per environment."""

MOST_CHOICES = 1_000_000
"""Largest sum of the choices of all branches: a policy has an output for each."""

_Decode = Callable[[Choices, Float], Any]
"""(choices, u [..., A_c]) -> the action of a leaf, or of a Dict or Tuple of them."""


class Actions:
    """Conversion of flat actions to those of a space, for one environment or N at once. Can be pickled.

    ``spec.description`` is the space as text.

    env: name of the environment, for messages
    Raises :class:`EnvError` for an unsupported leaf, a Box without finite bounds, an empty space, and one of
    more choices than :data:`MOST_CHOICES`.
    """

    def __init__(self, space: Space, env: str) -> None:
        decoders: list[_Decode] = []
        counts: list[int] = []
        starts: list[int] = []
        width = 0
        for leaf in leaves(space, "action", env):
            if isinstance(leaf.space, gym.spaces.Box):
                _refuse_unbounded(leaf, env)
                size = prod(leaf.space.shape)
                decoders.append(_Affine(leaf.space, slice(width, width + size)))
                width += size
            else:
                sizes, first = branches(leaf.space)
                decoders.append(_discrete(leaf.space, slice(len(counts), len(counts) + len(sizes))))
                counts += sizes
                starts += first
        if sum(counts) > MOST_CHOICES:
            raise EnvError(
                f"the action has {sum(counts):,} choices",
                where=f"{env}, {space}",
                why=f"a policy has an output for each, and the limit is {MOST_CHOICES:,}",
                fix="wrap the environment so that several smaller choices, or a number in a Box, represent "
                "them (base_config.wrappers)",
            )
        self.spec = ActionSpec(tuple(counts), width, " ".join(str(space).split()))
        self._decode = _build_decoder(space, iter(decoders))
        self._shift = np.array(starts, np.int64) - [where.start for where in self.spec.branch_slices]

    def to_env(self, action: Float) -> Any:  # noqa: ANN401 - a space may hold anything
        """Convert a flat action [A], or those of N environments [N, A] leaf by leaf for vector classes."""
        discrete = self.spec.discrete
        if not discrete:
            return self._decode(_NO_CHOICES, action)
        return self._decode(self._choices(action[..., :discrete]), action[..., discrete:])

    def _choices(self, one_hots: Float) -> Choices:
        """Convert one-hots to values. Raises ValueError where a branch is not one-hot."""
        chosen = one_hots.nonzero()[-1].reshape(*one_hots.shape[:-1], len(self._shift))
        values: Choices = (chosen + self._shift).T
        return values


_NO_CHOICES: Choices = np.zeros(0, np.int64)


def branches(space: Space) -> tuple[list[int], list[int]]:
    """Return number of choices and smallest value of each branch of a discrete leaf."""
    if isinstance(space, gym.spaces.Discrete):
        return [int(space.n)], [int(space.start)]
    if isinstance(space, gym.spaces.MultiDiscrete):
        return space.nvec.ravel().tolist(), space.start.ravel().tolist()
    size = prod(space.shape or ())
    return [2] * size, [0] * size


def _build_decoder(space: Space, decoders: Any) -> _Decode:  # noqa: ANN401 - an iterator over decoders
    """Return the decoder of a tree of spaces. decoders: of its leaves, in order."""
    if is_leaf(space):
        decode: _Decode = next(decoders)
        return decode
    parts = [(key, _build_decoder(part, decoders)) for key, part in branches_of(space)]
    return partial(_dict_of if isinstance(space, gym.spaces.Dict) else _tuple_of, parts)


_Parts = Sequence[tuple[Any, _Decode]]
"""Key and decoder of each part of a Dict or Tuple."""


def _dict_of(parts: _Parts, choices: Choices, u: Float) -> dict[Any, Any]:
    """Decode the action of a Dict."""
    return {key: decode(choices, u) for key, decode in parts}


def _tuple_of(parts: _Parts, choices: Choices, u: Float) -> tuple[Any, ...]:
    """Decode the action of a Tuple."""
    return tuple([decode(choices, u) for _, decode in parts])


def _discrete(space: Space, where: slice) -> _Decode:
    """Return the decoder of a discrete leaf with the branches ``where``."""
    dtype = np.dtype(space.dtype)
    if isinstance(space, gym.spaces.Discrete):
        return partial(_choice, where.start, dtype)
    return partial(_choices, where, tuple(space.shape or ()), dtype)


def _choice(branch: int, dtype: np.dtype[Any], choices: Choices, u: Float) -> Any:  # noqa: ANN401 - one number
    """Return the chosen value of a Discrete, in the dtype of its space."""
    return choices[branch].astype(dtype)


def _choices(
    where: slice, shape: tuple[int, ...], dtype: np.dtype[Any], choices: Choices, u: Float
) -> NDArray[Any]:
    """Return the chosen values of a MultiDiscrete or MultiBinary, in shape and dtype of its space."""
    values = choices[where].T
    return values.reshape((*values.shape[:-1], *shape)).astype(dtype)


class _Affine:
    """u in [-1, 1] mapped to the bounds of a Box, rounded in one of integers."""

    def __init__(self, space: gym.spaces.Box, where: slice) -> None:
        self._where, self._shape, self._dtype = where, space.shape, space.dtype
        self._whole = space.dtype.kind != "f"
        ends = ((space.low.ravel(), np.inf), (space.high.ravel(), -np.inf))
        low, high = (_inside(end, inward) if self._whole else end for end, inward in ends)
        self._low, self._high = low, high
        self._centre, self._half = high / 2 + low / 2, high / 2 - low / 2

    def __call__(self, choices: Choices, u: Float) -> NDArray[Any]:
        scaled = self._centre + self._half * u[..., self._where]
        if self._whole:
            scaled = np.rint(scaled)
        inside = np.minimum(np.maximum(scaled, self._low), self._high)  # rounding may leave the bounds
        action: NDArray[Any] = inside.reshape((*u.shape[:-1], *self._shape)).astype(self._dtype, copy=False)
        return action


def _inside(end: NDArray[Any], inward: float) -> NDArray[np.float64]:
    """Return bounds of integers as float64; where rounding led outside, beyond 2**53, the next number inside.

    inward: ∞ for a lower bound, −∞ for an upper one
    """
    rounded = end.astype(np.float64)
    exact, near = end.astype(object), rounded.astype(object)
    outside = near < exact if inward > 0 else near > exact
    return np.where(outside, np.nextafter(rounded, inward), rounded)


def _refuse_unbounded(leaf: Leaf, env: str) -> None:
    """Raise EnvError for a Box without finite bounds."""
    space = leaf.space
    assert isinstance(space, gym.spaces.Box)
    if not (space.is_bounded() and np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        name = f" {leaf.name!r}" if leaf.name else ""
        raise EnvError(
            f"the action{name} has no finite bounds",
            where=f"{env}, {space}",
            why="actions are in [-1, 1] and are mapped to the bounds",
            fix="wrap the environment so that its action space is a bounded Box (base_config.wrappers)",
        )
