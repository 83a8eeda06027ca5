"""A number for each open stream, read and written for one stream or for all streams of a step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from algorithm.core.data import Bool, Int


class Open(NamedTuple):
    """An open stream: its current step, and the number stored for it."""

    step: int
    number: float


class OpenStreams:
    """Step and number of every open stream, in arrays, so that thousands of them are one call.

    Iteration follows the order in which streams were opened.

    kind: dtype of the numbers
    """

    def __init__(self, kind: DTypeLike) -> None:
        self._places: dict[int, int] = {}
        self._free: list[int] = []
        self._steps = np.zeros(8, np.int64)
        self._numbers: NDArray[Any] = np.zeros(8, kind)

    def __iter__(self) -> Iterator[tuple[int, Open]]:
        """Yield each open stream with its step and number."""
        return ((stream, self._at(place)) for stream, place in self._places.items())

    def get(self, stream: int) -> Open | None:
        """Return step and number of a stream; None unless it is open."""
        return self._at(self._places[stream]) if stream in self._places else None

    def put(self, stream: int, step: int, number: float) -> None:
        """Open a stream, or replace its step and number."""
        place = self._place(stream)
        self._steps[place] = step
        self._numbers[place] = number

    def close(self, stream: int) -> Open | None:
        """Close a stream and return its step and number; None unless it was open."""
        known = self.get(stream)
        if known is not None:
            self._free.append(self._places.pop(stream))
        return known

    def of(self, streams: Int) -> tuple[Bool, Int, NDArray[Any]]:
        """Return which of ``streams`` [N] are open, their steps and numbers; arbitrary ones if closed."""
        places = self._find(streams)
        return places >= 0, self._steps[places], self._numbers[places]

    def renew(self, streams: Int, steps: Int, numbers: NDArray[Any], ended: Bool) -> None:
        """Open N different streams or replace their steps and numbers; close those that have ``ended``."""
        for stream in streams[ended].tolist():
            self.close(stream)
        on = ~ended
        places = self._find(streams[on])
        new = places < 0
        places[new] = [self._place(stream) for stream in streams[on][new].tolist()]
        self._steps[places] = steps[on]
        self._numbers[places] = numbers[on]

    def _find(self, streams: Int) -> Int:
        """Return the places of ``streams`` [N]; −1 of those that are not open."""
        return np.fromiter(map(self._places.get, streams.tolist(), repeat(-1)), np.int64, len(streams))

    def _at(self, place: int) -> Open:
        """Return step and number at a place of the arrays."""
        return Open(self._steps.item(place), self._numbers.item(place))

    def _place(self, stream: int) -> int:
        """Return the place of a stream in the arrays, a new one if it is not open."""
        if stream not in self._places:
            place = self._free.pop() if self._free else len(self._places)
            if place == len(self._steps):
                self._steps = np.resize(self._steps, 2 * place)
                self._numbers = np.resize(self._numbers, 2 * place)
            self._places[stream] = place
        return self._places[stream]
