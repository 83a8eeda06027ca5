"""Values that simulators return, read and checked: rewards, ends, and an episode's numbers in the infos."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from traceback import walk_tb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from algorithm.core.errors import GYMNASIUM, described
from algorithm.core.steps import Array, Bool, Double, Float, Int
from algorithm.core.wording import counted

_SIGNATURES = dict(zip(("reset", "step"), GYMNASIUM.splitlines()[1:], strict=True))
_RESULTS = {"reset": 2, "step": 5}
_CALLERS = re.compile(r"gymnasium\.(core|utils|wrappers)\b|algorithm\.env\.(gym|parameters|wrappers)\b")
"""Modules that call an environment, and do not define one."""


MISUSE = (TypeError, ValueError, AttributeError, AssertionError)
"""Errors of a call with arguments or results that do not fit."""


class SpaceMismatchError(Exception):
    """An environment that violates its announced spaces."""


def refuse_misuse(call: str, error: Exception) -> None:
    """Raise SpaceMismatchError if the call itself was wrong: the next one would fail in the same way.

    call: ``reset`` or ``step``; does nothing about an error in the environment's own code
    """
    *_, (frame, _) = walk_tb(error.__traceback__)
    if _CALLERS.match(frame.f_globals.get("__name__", "")):
        raise SpaceMismatchError(f"{described(error)}; {_SIGNATURES[call]}") from error


def results_of(call: str, returned: Any) -> Sequence[Any]:  # noqa: ANN401 - whatever an environment returns
    """Return the values of a reset or step. Raises SpaceMismatchError if they are not Gymnasium's."""
    if not isinstance(returned, tuple | list) or len(returned) != _RESULTS[call]:
        kind = type(returned).__name__
        what = counted(len(returned), "value") if kind == "tuple" else f"one value, of type {kind}"
        raise SpaceMismatchError(f"{call} has returned {what}; {_SIGNATURES[call]}")
    if not isinstance(returned[-1], Mapping):
        raise SpaceMismatchError(f"the info that {call} has returned is {returned[-1]!r:.40}, not a dict")
    return returned


def as_number(value: Any, what: str) -> float:  # noqa: ANN401 - whatever an environment returns
    """Convert a number or an array of one to a float. Raises SpaceMismatchError, also for text."""
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
    """Convert a bool or a number to a bool. Raises SpaceMismatchError, also for NaN and text."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    number = as_number(value, what)
    if math.isnan(number):
        raise SpaceMismatchError(f"{what} is nan, neither true nor false")
    return bool(number)


def fits_float32(values: ArrayLike) -> Bool:
    """Return which numbers are finite as float32, the type of stored rewards and of networks."""
    array = np.asarray(values)
    if array.dtype != np.float32:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    finite: Bool = np.isfinite(array)
    return finite


def bad_number(value: np.floating[Any]) -> str:
    """Return the words for a number that :func:`fits_float32` refuses."""
    beyond = "beyond float32's ±3.4e+38"
    if np.isfinite(value):
        return f"{value:g}, {beyond}"
    return f"{value}, or {beyond}" if np.isinf(value) and value.dtype == np.float32 else str(value)


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
    """Return the info of sub-environment i. Gymnasium's "_key" marks the environments that have a "key"."""
    if not isinstance(infos, Mapping):
        return infos[i]
    return {
        key: info_of(part, i)
        for key, part in infos.items()
        if not _is_flag(infos, key) and (f"_{key}" not in infos or infos[f"_{key}"][i])
    }


def numbers_of(value: ArrayLike, n: int, what: str) -> Double:
    """Return a new array with one number per sub-environment, [N]. Raises SpaceMismatchError."""
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "fiub":  # numpy would parse text
        raise SpaceMismatchError(f"{what} are {numbers.dtype}, not numbers")
    if numbers.shape != (n,):  # numpy would broadcast it silently
        raise SpaceMismatchError(f"{what} have shape {numbers.shape} instead of {(n,)}")
    return np.array(numbers, np.float64)


def flags_of(value: ArrayLike, n: int, what: str) -> Bool:
    """Return a new array with one truth value per sub-environment, [N]. Raises SpaceMismatchError."""
    numbers = numbers_of(value, n, what)
    if np.isnan(numbers).any():  # numpy would take it for true
        raise SpaceMismatchError(f"{what} are NaN, neither true nor false")
    return numbers.astype(np.bool_)


def _is_flag(infos: Mapping[Any, Batched], key: Any) -> bool:  # noqa: ANN401 - a mapping may have any keys
    """Return whether a key of infos marks which environments have another key."""
    return isinstance(key, str) and key.startswith("_") and key[1:] in infos


class Remark(NamedTuple):
    """A warning about an environment that ends no episode."""

    what: str
    why: str
    fix: str


class TimeStep(NamedTuple):
    """Observation and action mask of an agent."""

    obs: Mapping[str, Array]  # name -> observation, possibly the environment's own array
    action_mask: Bool | None  # [ΣN] true where a choice is allowed; None for all
    executed: Float | None = None  # [A] flat action that was executed in place of the one asked for
    by_person: bool = False  # a person has done it


_SUMMED = "reward"
"""Beginning of the keys that are summed over an episode."""


def present(keys: Sequence[str], values: Double) -> dict[str, float]:
    """Return the finite numbers of an episode by key. values: [K], NaN for a missing number."""
    return {key: value for key, value in zip(keys, values.tolist(), strict=True) if math.isfinite(value)}


PERSON = "steps of a person"
"""Key of a person's steps in an episode, there once an environment has reported any."""


class EpisodeInfos:
    """The numbers in the infos of N environments' episodes, by key; NaN for a missing one.

    keys:   names of infos, and :data:`PERSON` after them
    values: [N, K]; sums over the episode for keys that begin with ``reward`` and for a person's steps, for
            others the last number
    """

    def __init__(self, keys: Sequence[str], n: int = 1) -> None:
        self.keys = (*keys, PERSON)
        self._summed = [key.startswith(_SUMMED) or key == PERSON for key in self.keys]
        self._first = np.full(len(self.keys), np.nan)
        self.values: Double = np.tile(self._first, (n, 1))
        self._over: Bool = np.zeros(n, np.bool_)

    def begin(self) -> None:
        """Begin an episode, of a single environment."""
        self.values[:] = self._first

    def begin_next(self, rows: Int) -> None:
        """Begin the episodes of ``rows`` with their next step; until then the last numbers stay."""
        self._over[rows] = True

    def add(self, info: Mapping[str, Any], by_person: bool | None = None) -> None:
        """Add the info of a step, of a single environment. Raises SpaceMismatchError for a wrong value.

        by_person: a person acted; None: the environment does not report it
        """
        for k, key in enumerate(self.keys[:-1]):
            if info.get(key) is not None:
                self._put(k, np.True_, np.float64(as_number(info[key], f"info[{key!r}]")))
        if by_person is not None:
            self._add_person(np.True_, np.float64(by_person))

    def add_batch(
        self,
        sources: Sequence[tuple[Batched, Bool]],
        took: Bool,
        ended: Bool,
        by_person: Bool | None = None,
    ) -> None:
        """Add the infos of a step of N environments, in the form of vector classes.

        sources: infos, with the environments [N] that they are read of
        took, ended: [N] environments that took a step, and whose episodes ended with it
        by_person: [N] a person acted; None: nothing is reported
        Raises SpaceMismatchError for values that are no numbers.
        """
        self.values[self._over & took] = self._first
        self._over = np.where(took, ended, self._over)
        for infos, rows in sources:
            for k, key in enumerate(self.keys[:-1]):
                if key in infos:
                    there = rows & np.asarray(infos.get(f"_{key}", True), np.bool_)
                    self._put(k, *_numbers(infos[key], there, f"infos[{key!r}]"))
        if by_person is not None:
            self._add_person(took, by_person.astype(np.float64))

    def _add_person(self, rows: Bool | np.bool_, by_person: Double | np.float64) -> None:
        """Count a person's steps of some rows; from the first report on, every episode begins with 0."""
        self._first[-1] = 0.0
        self._put(-1, rows, by_person)

    def _put(self, k: int, rows: Bool | np.bool_, numbers: Double | np.float64) -> None:
        """Store numbers of key k for some rows; add them up if the key is summed."""
        before = self.values[:, k]
        if self._summed[k]:
            numbers = np.where(np.isnan(before), numbers, before + numbers)
        self.values[:, k] = np.where(rows, numbers, before)


def _numbers(values: Any, there: Bool, what: str) -> tuple[Bool, Double]:  # noqa: ANN401 - whatever was put there
    """Return which environments have a number [N], and the numbers [N]; None counts as missing.

    Vector classes of Gymnasium store whatever is no number of Python's own as objects.
    """
    entries = np.asarray(values)
    if entries.dtype != np.object_ or entries.shape != there.shape:
        return there, numbers_of(entries, len(there), what)
    there = there & np.array([entry is not None for entry in entries])
    numbers = np.full(len(there), np.nan)
    for row in np.flatnonzero(there):
        numbers[row] = as_number(entries[row], what)
    return there, numbers
