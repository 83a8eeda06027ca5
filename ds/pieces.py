"""Transitions of one agent put together, until there are enough of them to be sent."""

from __future__ import annotations

from typing import Any

import numpy as np

from algorithm.data import Array, Segment

_FIRST_ROWS = 8

_OBSERVED = ("action_mask", "carry")
"""One row for each observation, as ``obs``."""

_BETWEEN = ("action", "z", "behaviour_logp", "reward", "terminated", "truncated")
"""One row for each transition."""


class Rows:
    """Rows of one shape, appended one after the other; room is doubled when it runs out."""

    def __init__(self, like: Array) -> None:
        """like: [n, ...] such rows, which are not taken."""
        self._rows = np.empty((_FIRST_ROWS, *like.shape[1:]), like.dtype)
        self._count = 0

    def append(self, rows: Array) -> None:
        """Copy ``rows`` [n, ...] behind the others."""
        end = self._count + len(rows)
        if end > len(self._rows):
            wider = np.empty((max(end, 2 * len(self._rows)), *self._rows.shape[1:]), self._rows.dtype)
            wider[: self._count] = self._rows[: self._count]
            self._rows = wider
        self._rows[self._count : end] = rows
        self._count = end

    def taken(self) -> Array:
        """All of them, [count, ...], in memory of their own."""
        return self._rows[: self._count].copy()


class Piece:
    """Consecutive transitions of one agent, copied: what a step hands out are views of all agents' rows.

    The observation between two transitions is kept once, and with it its mask and its carry.
    """

    def __init__(self, first: Segment) -> None:
        """Begin with the transitions of ``first``."""
        self._stream, self._start_step, self._length = first.stream, first.start_step, 0
        self._obs = {name: Rows(value) for name, value in first.obs.items()}
        self._rest = {name: Rows(getattr(first, name)) for name in (*_OBSERVED, *_BETWEEN)}
        self._observe(first, slice(1))
        self.append(first)

    @property
    def length(self) -> int:
        """Transitions in it."""
        return self._length

    @property
    def next_step(self) -> int:
        """``start_step`` of the transition that would follow."""
        return self._start_step + self._length

    def append(self, segment: Segment) -> None:
        """Take the transitions of ``segment`` too; its first observation is the last one here."""
        self._observe(segment, slice(1, None))
        for name in _BETWEEN:
            self._rest[name].append(getattr(segment, name))
        self._length += segment.length

    def segment(self, *, truncated: bool) -> Segment:
        """All of it; ``truncated``: the episode is cut off behind its last transition."""
        rest: dict[str, Any] = {name: rows.taken() for name, rows in self._rest.items()}
        rest["truncated"][-1] |= np.bool_(truncated)
        obs = {name: rows.taken() for name, rows in self._obs.items()}
        return Segment(stream=self._stream, start_step=self._start_step, obs=obs, **rest)

    def _observe(self, segment: Segment, which: slice) -> None:
        for name, value in segment.obs.items():
            self._obs[name].append(value[which])
        for name in _OBSERVED:
            self._rest[name].append(getattr(segment, name)[which])
