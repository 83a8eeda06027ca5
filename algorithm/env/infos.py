"""Numbers of an episode that an environment puts into its infos: success, parts of the reward."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from algorithm.core.data import Bool, Double, Int
from algorithm.env.outputs import Batched, as_number, numbers_of

_SUMMED = "reward"
"""First part of the keys that are summed over an episode."""


def present(keys: Sequence[str], values: Double) -> dict[str, float]:
    """Return the finite numbers of an episode by key. values: [K], NaN for what is not there."""
    return {key: value for key, value in zip(keys, values.tolist(), strict=True) if math.isfinite(value)}


class EpisodeInfos:
    """The numbers of the episodes of N environments by key; NaN for one that was not there.

    values: [N, K]; of keys that begin with ``reward`` the sum over the episode, else the last one
    """

    def __init__(self, keys: Sequence[str], n: int = 1) -> None:
        self.keys = tuple(keys)
        self.values: Double = np.full((n, len(self.keys)), np.nan)
        self._over: Bool = np.zeros(n, np.bool_)

    def begin(self) -> None:
        """Begin the episode of an only environment."""
        self.values[:] = np.nan

    def begin_next(self, rows: Int) -> None:
        """Begin the episodes of these environments with their next step; until then the last ones stay."""
        self._over[rows] = True

    def add(self, info: Mapping[str, Any]) -> None:
        """Take the info of a step of an only environment. Raises SpaceMismatchError for what is no number."""
        for k, key in enumerate(self.keys):
            if info.get(key) is not None:
                self._put(k, np.True_, np.float64(as_number(info[key], f"info[{key!r}]")))

    def add_batch(self, infos: Batched, took: Bool, ended: Bool, *, last: str = "") -> None:
        """Take the infos of a step of N environments, as vector classes have them.

        took, ended: [N] those that took a step, and whose episodes ended with it
        last: the infos' key of those of ended episodes; without it they lie with the others
        Raises SpaceMismatchError for what are no numbers.
        """
        self.values[self._over & took] = np.nan
        self._over = np.where(took, ended, self._over)
        finals = infos.get(last, {}) if last else infos
        for source, rows in ((infos, took & ~ended), (finals, took & ended)):
            for k, key in enumerate(self.keys):
                if key in source:
                    there = rows & np.asarray(source.get(f"_{key}", True), np.bool_)
                    self._put(k, *_numbers(source[key], there, f"infos[{key!r}]"))

    def _put(self, k: int, rows: Bool | np.bool_, found: Double | np.float64) -> None:
        before = self.values[:, k]
        if self.keys[k].startswith(_SUMMED):
            found = np.where(np.isnan(before), found, before + found)
        self.values[:, k] = np.where(rows, found, before)


def _numbers(values: Any, there: Bool, what: str) -> tuple[Bool, Double]:  # noqa: ANN401 - whatever was put there
    """Return which environments have a number [N], and the numbers [N]; None is none.

    Vector classes of Gymnasium hold whatever is no number of Python's own as objects.
    """
    given = np.asarray(values)
    if given.dtype != np.object_ or given.shape != there.shape:
        return there, numbers_of(given, len(there), what).astype(np.float64)
    there = there & np.array([one is not None for one in given])
    found = np.full(len(there), np.nan)
    for row in np.flatnonzero(there):
        found[row] = as_number(given[row], what)
    return there, found
