"""Values that simulators hand out, read and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from algorithm.core.data import Array, Bool, Float


class SpaceMismatchError(Exception):
    """An environment that violates its announced spaces."""


def as_number(value: Any, what: str) -> float:  # noqa: ANN401 - whatever an environment returns
    """Convert to a float, also an array of one; ``float`` would accept text. Raises SpaceMismatchError."""
    if type(value) is float or isinstance(value, (int, np.floating)):
        return float(value)
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.empty(0)
    if array.dtype.kind not in "fiub" or array.size != 1:
        raise SpaceMismatchError(f"{what} is {value!r:.40}, a {type(value).__name__}, not a number")
    return float(array.item())


def as_bool(value: Any, what: str) -> bool:  # noqa: ANN401 - whatever an environment returns
    """Convert to a bool, also from a number other than NaN, not from text. Raises SpaceMismatchError."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    number = as_number(value, what)
    if math.isnan(number):
        raise SpaceMismatchError(f"{what} is nan, neither true nor false")
    return bool(number)


Batched = Any
"""Observations or infos of N sub-environments: an array, list or structure of them, with a row for each."""


def observation_of(obs: Batched, i: int) -> Any:  # noqa: ANN401 - a space may hold anything
    """Return the observation of sub-environment i; a Dict or Tuple holds its parts for all."""
    if isinstance(obs, Mapping):
        return {key: observation_of(part, i) for key, part in obs.items()}
    if isinstance(obs, tuple):
        return tuple(observation_of(part, i) for part in obs)
    return obs[i]


def info_of(infos: Batched, i: int) -> Any:  # noqa: ANN401 - an info may hold anything
    """Return the info of sub-environment i. Beside "key", "_key" marks who has one (Gymnasium)."""
    if not isinstance(infos, Mapping):
        return infos[i]
    return {
        key: info_of(part, i)
        for key, part in infos.items()
        if not _is_flag(infos, key) and (f"_{key}" not in infos or infos[f"_{key}"][i])
    }


def numbers_of(value: ArrayLike, n: int, what: str) -> Float:
    """Return a new array with one number per sub-environment, [N]. Raises SpaceMismatchError."""
    given = np.asarray(value)
    if given.dtype.kind not in "fiub":  # numpy would parse text
        raise SpaceMismatchError(f"{what} are {given.dtype}, not numbers")
    if given.shape != (n,):  # numpy would broadcast it silently
        raise SpaceMismatchError(f"{what} have shape {given.shape} instead of {(n,)}")
    return np.array(given, np.float32)


def flags_of(value: ArrayLike, n: int, what: str) -> Bool:
    """Return a new array with one truth value per sub-environment, [N]. Raises SpaceMismatchError."""
    numbers = numbers_of(value, n, what)
    if np.isnan(numbers).any():  # numpy would take it for true
        raise SpaceMismatchError(f"{what} are NaN, neither true nor false")
    return numbers.astype(np.bool_)


def _is_flag(infos: Mapping[Any, Batched], key: Any) -> bool:  # noqa: ANN401 - a mapping may have any keys
    return isinstance(key, str) and key.startswith("_") and key[1:] in infos


class Remark(NamedTuple):
    """Something about an environment that ends no episode and that its user should know."""

    what: str
    why: str
    fix: str


class TimeStep(NamedTuple):
    """Observation and action mask of an agent, and remarks that were not made before."""

    obs: Mapping[str, Array]  # name -> observation, possibly the environment's own array
    action_mask: Bool | None  # [ΣN] true where a choice is allowed; None for all
    remarks: Sequence[Remark] = ()
