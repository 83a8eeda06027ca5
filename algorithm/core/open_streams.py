"""Numbers of open streams, of one at a time or of all that take a step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from algorithm.core.data import Bool, Int


class Open(NamedTuple):
    """An open stream: the step it stands at, and its number."""

    step: int
    number: float


class OpenStreams:
    """The step and a number of every open stream, in arrays: a step of thousands is one of each.

    They are listed in the order in which they were opened.

    kind: of the numbers
    """

    def __init__(self, kind: DTypeLike) -> None:
        self._places: dict[int, int] = {}
        self._free: list[int] = []
        self._steps = np.zeros(8, np.int64)
        self._numbers: NDArray[Any] = np.zeros(8, kind)

    def __iter__(self) -> Iterator[tuple[int, Open]]:
        """Yield each stream with what is known of it."""
        return ((stream, self._at(place)) for stream, place in self._places.items())

    def get(self, stream: int) -> Open | None:
        """Return what is known of a stream, None unless it is open."""
        return self._at(self._places[stream]) if stream in self._places else None

    def put(self, stream: int, step: int, number: float) -> None:
        """Open a stream, or renew what is known of it."""
        place = self._place(stream)
        self._steps[place] = step
        self._numbers[place] = number

    def close(self, stream: int) -> Open | None:
        """Forget a stream; return what was known of it, None unless it was open."""
        known = self.get(stream)
        if known is not None:
            self._free.append(self._places.pop(stream))
        return known

    def of(self, streams: Int) -> tuple[Bool, Int, NDArray[Any]]:
        """Return which of ``streams`` [N] are open, and their steps and numbers; any of the others."""
        places = self._find(streams)
        return places >= 0, self._steps[places], self._numbers[places]

    def renew(self, streams: Int, steps: Int, numbers: NDArray[Any], ended: Bool) -> None:
        """Open N different streams, or renew what is known of them; close those that have ``ended``."""
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
        return Open(self._steps.item(place), self._numbers.item(place))

    def _place(self, stream: int) -> int:
        if stream not in self._places:
            place = self._free.pop() if self._free else len(self._places)
            if place == len(self._steps):
                self._steps = np.resize(self._steps, 2 * place)
                self._numbers = np.resize(self._numbers, 2 * place)
            self._places[stream] = place
        return self._places[stream]
