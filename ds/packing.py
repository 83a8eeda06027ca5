"""What an actor's agents did, packed into what is sent to the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from algorithm.data import Segment
from ds.limits import most_steps
from ds.pieces import Piece
from ds.protocol import Part

if TYPE_CHECKING:  # an actor's messages are packed and sent without torch
    from algorithm.roles import Episode

Key = tuple[str, int]
"""Behaviour and agent."""

Result = tuple[str, int, float, int]
"""Behaviour, agent, return and length of an episode that ended."""


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A parcel that has no number yet; its fields are those of :class:`~ds.protocol.Parcel`."""

    lane: int
    version: int
    steps: int
    stride: int
    parts: tuple[Part, ...]
    episodes: tuple[Result, ...] = ()


@dataclass
class _Stream:
    """An open episode."""

    next_step: int
    sent: bool = False  # there were pieces before this one
    piece: Piece | None = None
    order: int = 0  # when the piece began
    version: int | None = None  # of the weights that made its first transition; None until they are told


@dataclass
class _Ready:
    part: Part
    order: int
    version: int | None

    @property
    def length(self) -> int:
        """Transitions in it."""
        return 0 if self.part.segment is None else self.part.segment.length


class Packer:
    """Collects the transitions of all behaviours until an episode ends or a piece of it is long enough.

    max_length: transitions in a piece; a longer episode goes in several, each of which begins with the
                observation that the one before ends with
    lanes:      all of agent i goes through lane i mod ``lanes``, where the order is kept

    Raises ValueError unless both are positive.
    """

    def __init__(self, *, max_length: int, lanes: int) -> None:
        if max_length < 1 or lanes < 1:
            raise ValueError(f"pieces of {max_length} transitions in {lanes} lanes cannot be sent")
        self._max_length, self._lanes = max_length, lanes
        self._streams: dict[Key, _Stream] = {}
        self._undated: list[_Stream] = []
        self._ready: list[_Ready] = []
        self._results: list[Result] = []
        self._clock = 0  # pieces and ends so far
        self._accounted = 0  # environment steps in what has been packed

    def recorder(self, behaviour: str) -> BehaviourRecorder:
        """The :class:`~algorithm.experience.agent_processor.Recorder` of the agents of one behaviour."""
        return BehaviourRecorder(self, behaviour)

    def add(self, behaviour: str, segment: Segment) -> None:
        """A transition of agent ``segment.stream``.

        One that does not follow the agent's last one ends what was open as truncated, as in the replay.
        """
        key = (behaviour, segment.stream)
        stream = self._streams.get(key)
        if stream is None or stream.next_step != segment.start_step:
            self.close(*key)
            stream = self._streams[key] = _Stream(segment.start_step)
        if stream.piece is None:
            stream.piece, stream.order, stream.version = Piece(segment), self._tick(), None
            self._undated.append(stream)
        else:
            stream.piece.append(segment)
        stream.next_step += segment.length
        if segment.terminated[-1] or segment.truncated[-1]:
            del self._streams[key]
            self._send_off(key, stream)
        elif stream.piece.length >= self._max_length:
            self._send_off(key, stream)

    def close(self, behaviour: str, agent: int) -> None:
        """The agent's open episode ends as truncated where it is; nothing happens if it has none."""
        stream = self._streams.pop((behaviour, agent), None)
        if stream is None:
            return
        if stream.piece is not None:
            self._send_off((behaviour, agent), stream, truncated=True)
        elif stream.sent:
            self._ready.append(_Ready(Part(behaviour, agent, None), self._tick(), None))

    def flush(
        self, *, steps: int, stride: int, episodes: Sequence[Episode], version: int, whole: bool = False
    ) -> list[Packed]:
        """What can go now. To be called after every step of the rollout.

        steps:    environment steps of the rollout so far; what is handed out accounts for all of them but
                  those beyond :func:`~ds.limits.most_steps` of its transitions, which wait for the next call
        stride:   environment steps of one step of the rollout
        episodes: that ended with the last step
        version:  of the weights that acted in all that was added since the last call; it never falls
        whole:    all there is, one parcel a lane and at least one, in the order in which it was added; else
                  a parcel for each piece, so that none is larger than a piece
        """
        self._results += [(e.behaviour, e.agent, e.total, e.length) for e in episodes]
        if whole:
            for key, stream in self._streams.items():
                self._send_off(key, stream)
        self._date(version)
        ready, self._ready = self._ready, []
        groups = (self._by_lane(ready) or [[]]) if whole else [[one] for one in ready]
        shares = [
            min(share, most_steps(sum(one.length for one in group)))
            for group, share in zip(
                groups, _shares(steps - self._accounted, stride, len(groups)), strict=True
            )
        ]
        self._accounted += sum(shares)
        return [
            Packed(
                lane=group[0].part.agent % self._lanes if group else 0,
                version=min((one.version for one in group if one.version is not None), default=version),
                steps=share,
                stride=stride,
                parts=tuple(one.part for one in group),
                episodes=self._results_of(group, last=group is groups[-1]),
            )
            for group, share in zip(groups, shares, strict=True)
        ]

    def finish(self, *, steps: int, stride: int, episodes: Sequence[Episode], version: int) -> list[Packed]:
        """At the rollout's end: what is unfinished ends as truncated, and nothing is left behind.

        The arguments are those of :meth:`flush`.
        """
        for behaviour, agent in list(self._streams):
            self.close(behaviour, agent)
        left = bool(self._ready or episodes or self._results or steps > self._accounted)
        return self.flush(
            steps=steps, stride=stride, episodes=episodes, version=version, whole=left and not self._ready
        )

    def _send_off(self, key: Key, stream: _Stream, *, truncated: bool = False) -> None:
        """The stream's piece is complete, if there is one; ``truncated``: with it the episode ends."""
        if stream.piece is None:
            return
        part = Part(*key, stream.piece.segment(truncated=truncated))
        self._ready.append(_Ready(part, stream.order, stream.version))
        stream.piece, stream.sent = None, True

    def _date(self, version: int) -> None:
        """All that began since the last flush was made with ``version``."""
        for stream in self._undated:
            stream.version = version
        self._undated.clear()
        for one in self._ready:
            one.version = version if one.version is None else one.version

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _by_lane(self, ready: list[_Ready]) -> list[list[_Ready]]:
        """One list a lane, oldest first; no empty ones."""
        lanes: dict[int, list[_Ready]] = {}
        for one in sorted(ready, key=lambda one: one.order):
            lanes.setdefault(one.part.agent % self._lanes, []).append(one)
        return list(lanes.values())

    def _results_of(self, group: list[_Ready], *, last: bool) -> tuple[Result, ...]:
        """The episodes of the agents in it; ``last``: and of those that are in no group of this flush."""
        agents = {(one.part.behaviour, one.part.agent) for one in group}
        found = [result for result in self._results if last or result[:2] in agents]
        self._results = [result for result in self._results if result not in found]
        return tuple(found)


class BehaviourRecorder:
    """Hands all that is recorded of one behaviour to the packer."""

    def __init__(self, packer: Packer, behaviour: str) -> None:
        self._packer, self._behaviour = packer, behaviour

    def add(self, segment: Segment) -> None:
        """See :meth:`Packer.add`."""
        self._packer.add(self._behaviour, segment)

    def close(self, stream: int) -> None:
        """See :meth:`Packer.close`."""
        self._packer.close(self._behaviour, stream)


def _shares(steps: int, stride: int, n: int) -> list[int]:
    """``steps`` in n parts that are about equal, each but the last a multiple of ``stride``."""
    strides, rest = divmod(steps, stride)
    shares = [stride * (strides * (i + 1) // n - strides * i // n) for i in range(n)]
    if shares:
        shares[-1] += rest
    return shares
