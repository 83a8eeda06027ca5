"""Which agents act elsewhere, as far as their actors' parcels tell, and whose episodes are open here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ds.checking import MAX_ENVIRONMENTS
from ds.protocol import Parcel

Stream = tuple[str, int]
"""(behaviour, number of the stream)"""

MAX_STREAMS = MAX_ENVIRONMENTS
"""Agents of one actor: without a limit, parcels that account for no step would make ever more of them."""

_AGENTS = 2**32
"""Streams that are reserved for each actor."""


def stream_of(number: int, agent: int) -> int:
    """The stream of an agent of actor ``number``; those of actor 0 are the agents of a single process."""
    return number * _AGENTS + agent


@dataclass
class _Source:
    """One actor: its environment steps, when each agent was heard of, and whose episode is open."""

    steps: int = 0
    silence: int = 0  # steps after which an agent that was not heard of has left
    heard: dict[Stream, int] = field(default_factory=dict)  # the one heard of first is the first
    open: dict[Stream, None] = field(default_factory=dict)  # likewise

    def forget_the_silent(self) -> None:
        while self.heard:
            first = next(iter(self.heard))
            if self.heard[first] > self.steps - self.silence and len(self.heard) <= MAX_STREAMS:
                return
            del self.heard[first]


class Streams:
    """Of every actor that has sent anything and has not left.

    silence: steps of all of an actor's environments after which an agent that was not heard of has left

    Of one actor no more than :data:`MAX_STREAMS` are known; of more the one that was heard of first has left.
    """

    def __init__(self, silence: int) -> None:
        self._silence = silence
        self._sources: dict[int, _Source] = {}
        self._agents: frozenset[Stream] | None = frozenset()

    @property
    def numbers(self) -> frozenset[int]:
        """Of the actors."""
        return frozenset(self._sources)

    @property
    def agents(self) -> frozenset[Stream]:
        """Everybody who acts, as far as its actor's last parcels tell."""
        if self._agents is None:
            sources = self._sources.values()
            self._agents = frozenset().union(*(source.heard for source in sources))
        return self._agents

    def heard(self, number: int, parcel: Parcel) -> list[Stream]:
        """A parcel of actor ``number`` has been stored; returns whose open episodes end, being too many."""
        source = self._sources.setdefault(number, _Source())
        source.steps += parcel.steps
        source.silence = self._silence * parcel.stride
        ended = []
        for part in parcel.parts:
            stream, segment = (part.behaviour, stream_of(number, part.agent)), part.segment
            if segment is None:
                source.open.pop(stream, None)
                continue
            source.heard.pop(stream, None)
            source.heard[stream] = source.steps
            source.open.pop(stream, None)
            if not (segment.terminated[-1] or segment.truncated[-1]):
                source.open[stream] = None
                if len(source.open) > MAX_STREAMS:
                    ended.append(next(iter(source.open)))
                    del source.open[ended[-1]]
        source.forget_the_silent()
        self._agents = None
        return ended

    def left(self, number: int) -> list[Stream]:
        """Actor ``number`` has gone; those whose episodes it leaves open."""
        self._agents = None
        source = self._sources.pop(number, _Source())
        return sorted(source.open)

    def state(self) -> list[dict[str, Any]]:
        """As JSON."""
        return [
            {
                "number": number,
                "steps": source.steps,
                "silence": source.silence,
                "heard": [[*stream, at] for stream, at in source.heard.items()],
                "open": [list(stream) for stream in sorted(source.open)],
            }
            for number, source in self._sources.items()
        ]

    def load_state(self, state: list[Mapping[str, Any]]) -> None:
        """The reverse. KeyError, TypeError or ValueError for what is no such state."""
        self._agents = None
        self._sources = {
            int(one["number"]): _Source(
                steps=int(one["steps"]),
                silence=int(one["silence"]),
                heard={(str(behaviour), int(stream)): int(at) for behaviour, stream, at in one["heard"]},
                open={(str(behaviour), int(stream)): None for behaviour, stream in one["open"]},
            )
            for one in state
        }
