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
            if key in info:
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
                    there = np.asarray(source.get(f"_{key}", True), np.bool_)
                    found = numbers_of(source[key], len(rows), f"infos[{key!r}]").astype(np.float64)
                    self._put(k, rows & there, found)

    def _put(self, k: int, rows: Bool | np.bool_, found: Double | np.float64) -> None:
        before = self.values[:, k]
        if self.keys[k].startswith(_SUMMED):
            found = np.where(np.isnan(before), found, before + found)
        self.values[:, k] = np.where(rows, found, before)
