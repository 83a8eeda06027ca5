"""Transitions of an actor's agents, written into messages for the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from algorithm.core.data import Array, Segment, StepBatch
from ds.protocol import TrajectoryChunk, TrajectoryMessage, Transitions

if TYPE_CHECKING:  # an actor's messages are packed and sent without torch
    from algorithm.agents.roles import Episode

Key = tuple[str, int]
"""Behaviour and agent."""

Result = tuple[str, int, float, int]
"""Behaviour, agent, return and length of an episode that ended."""


@dataclass
class _Stream:
    """An open episode."""

    next_step: int
    sent: bool = False  # there were chunks before this one
    builder: ChunkBuilder | None = None
    order: int = 0  # when the chunk began
    version: int | None = None  # of the weights that made its first transition; None until flush


@dataclass
class _Ready:
    chunk: TrajectoryChunk
    order: int
    version: int | None

    @property
    def length(self) -> int:
        """Transitions in it."""
        return 0 if self.chunk.transitions is None else self.chunk.transitions.length


class TrajectoryWriter:
    """Writer of all behaviours' transitions: a chunk ends with its episode, or when it is long enough.

    max_length: transitions in a chunk; each further chunk of an episode begins with the observation that the
                one before ends with
    channels:   all of agent i goes through channel i mod ``channels``, where the order is kept

    Raises ValueError unless both are positive.
    """

    def __init__(self, *, max_length: int, channels: int) -> None:
        if max_length < 1 or channels < 1:
            raise ValueError(f"chunks of {max_length} transitions in {channels} channels cannot be sent")
        self._max_length, self._channels = max_length, channels
        self._streams: dict[Key, _Stream] = {}
        self._undated: list[_Stream] = []
        self._ready: list[_Ready] = []
        self._results: list[Result] = []
        self._clock = 0  # pieces and ends so far
        self._known: set[Key] = set()  # agents with transitions that are not gone
        self._gone: list[Key] = []  # since the last message

    def recorder(self, behaviour: str) -> BehaviourRecorder:
        """Return the :class:`~algorithm.agents.roles.Recorder` of the agents of one behaviour."""
        return BehaviourRecorder(self, behaviour)

    def add(self, behaviour: str, segment: Segment) -> None:
        """Add a transition of agent ``segment.stream``.

        One that does not follow the agent's last one ends what was open as truncated, as in the replay.
        """
        key = (behaviour, segment.stream)
        self._known.add(key)
        stream = self._streams.get(key)
        if stream is None or stream.next_step != segment.start_step:
            self.close(*key)
            stream = self._streams[key] = _Stream(segment.start_step)
        if stream.builder is None:
            stream.builder, stream.order, stream.version = ChunkBuilder(segment), self._tick(), None
            self._undated.append(stream)
        else:
            stream.builder.append(segment)
        stream.next_step += segment.length
        if segment.terminated[-1] or segment.truncated[-1]:
            del self._streams[key]
            self._send_off(key, stream)
        elif stream.builder.length >= self._max_length:
            self._send_off(key, stream)

    def close(self, behaviour: str, agent: int) -> None:
        """End the agent's open episode as truncated; does nothing if there is none."""
        stream = self._streams.pop((behaviour, agent), None)
        if stream is None:
            return
        if stream.builder is not None:
            self._send_off((behaviour, agent), stream, truncated=True)
        elif stream.sent:
            self._ready.append(_Ready(TrajectoryChunk(behaviour, agent, None), self._tick(), None))

    def flush(
        self, *, agents: frozenset[Key], episodes: Sequence[Episode], version: int, whole: bool = False
    ) -> list[TrajectoryMessage]:
        """Return messages, without actor and number, of complete chunks. Called after every step.

        agents:   all that are there after the last step, waiting or not
        episodes: that ended with the last step
        version:  of the weights that acted in all that was added since the last call; it never falls
        whole:    all there is, one message a channel and at least one, in the order of addition; else
                  a message for each chunk, so that none is larger than a chunk
        """
        if gone_now := self._known - agents:
            self._gone += sorted(gone_now)
            self._known -= gone_now
        self._results += [(e.behaviour, e.agent, e.total, e.length) for e in episodes]
        if whole:
            for key, stream in self._streams.items():
                self._send_off(key, stream)
        self._date(version)
        ready, self._ready = self._ready, []
        groups = (self._by_channel(ready) or [[]]) if whole else [[one] for one in ready]
        gone = [list[Key]() for _ in groups]
        if groups:
            last = {self._channel_of(group): k for k, group in enumerate(groups)}
            # Behind the agent's own transitions, whose order only its channel keeps.
            for key in self._gone:
                if key not in agents:  # else it is another agent's by now
                    gone[last.get(key[1] % self._channels, -1)].append(key)
            self._gone = []
        return [
            TrajectoryMessage(
                actor="",
                number=0,
                dropped=0,
                channel=self._channel_of(group),
                version=min((one.version for one in group if one.version is not None), default=version),
                chunks=tuple(one.chunk for one in group),
                episodes=self._results_of(group, last=group is groups[-1]),
                gone=tuple(left),
            )
            for group, left in zip(groups, gone, strict=True)
        ]

    def finish(self, *, episodes: Sequence[Episode], version: int) -> list[TrajectoryMessage]:
        """Return the last messages; open episodes end as truncated.

        The arguments are those of :meth:`flush`.
        """
        for behaviour, agent in list(self._streams):
            self.close(behaviour, agent)
        left = bool(self._ready or episodes or self._results)
        return self.flush(
            agents=frozenset(), episodes=episodes, version=version, whole=left and not self._ready
        )

    def _send_off(self, key: Key, stream: _Stream, *, truncated: bool = False) -> None:
        """Complete the stream's chunk, if there is one; ``truncated``: with it the episode ends."""
        if stream.builder is None:
            return
        chunk = TrajectoryChunk(*key, stream.builder.transitions(truncated=truncated))
        self._ready.append(_Ready(chunk, stream.order, stream.version))
        stream.builder, stream.sent = None, True

    def _date(self, version: int) -> None:
        """Set ``version`` for all that began since the last flush."""
        for stream in self._undated:
            stream.version = version
        self._undated.clear()
        for one in self._ready:
            one.version = version if one.version is None else one.version

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def _by_channel(self, ready: list[_Ready]) -> list[list[_Ready]]:
        """Return one list a channel, oldest first; no empty ones."""
        channels: dict[int, list[_Ready]] = {}
        for one in sorted(ready, key=lambda one: one.order):
            channels.setdefault(one.chunk.agent % self._channels, []).append(one)
        return list(channels.values())

    def _channel_of(self, group: list[_Ready]) -> int:
        return group[0].chunk.agent % self._channels if group else 0

    def _results_of(self, group: list[_Ready], *, last: bool) -> tuple[Result, ...]:
        """Return episodes of the agents in it; ``last``: and those in no group of this flush."""
        agents = {(one.chunk.behaviour, one.chunk.agent) for one in group}
        found = [result for result in self._results if last or result[:2] in agents]
        self._results = [result for result in self._results if result not in found]
        return tuple(found)


class BehaviourRecorder:
    """Recorder of one behaviour."""

    def __init__(self, writer: TrajectoryWriter, behaviour: str) -> None:
        self._writer, self._behaviour = writer, behaviour

    def add_steps(self, steps: StepBatch) -> None:
        """Add a step of the behaviour's agents to the messages."""
        for segment in steps.segments():
            self._writer.add(self._behaviour, segment)

    def close(self, stream: int) -> None:
        """End the stream's episode as truncated."""
        self._writer.close(self._behaviour, stream)


_FIRST_ROWS = 8

_OBSERVED = ("action_mask", "carry")
"""One row for each observation, as ``obs``."""

_BETWEEN = ("action", "z", "behaviour_logp", "reward", "terminated", "truncated")
"""One row for each transition."""


class GrowingArray:
    """Array of rows that grows: room is doubled when it runs out."""

    def __init__(self, like: Array) -> None:
        """Make an empty one. like: array [n, ...] with the row shape and dtype."""
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
        """Return all rows, [count, ...], as a copy."""
        return self._rows[: self._count].copy()


class ChunkBuilder:
    """Copies of one agent's consecutive transitions; a step itself hands out views of all agents' rows.

    The observation between two transitions is kept once, and with it its mask and its carry.
    """

    def __init__(self, first: Segment) -> None:
        """Begin with the transitions of ``first``."""
        self._start_step, self._length = first.start_step, 0
        self._obs = {name: GrowingArray(value) for name, value in first.obs.items()}
        self._rest = {name: GrowingArray(getattr(first, name)) for name in (*_OBSERVED, *_BETWEEN)}
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
        """Add the transitions of ``segment``; its first observation is the last one here."""
        self._observe(segment, slice(1, None))
        for name in _BETWEEN:
            self._rest[name].append(getattr(segment, name))
        self._length += segment.length

    def transitions(self, *, truncated: bool) -> Transitions:
        """Return all of them; ``truncated``: the episode is cut off behind the last one."""
        rest: dict[str, Any] = {name: rows.taken() for name, rows in self._rest.items()}
        rest["truncated"][-1] |= np.bool_(truncated)
        obs = {name: rows.taken() for name, rows in self._obs.items()}
        return Transitions(start_step=self._start_step, obs=obs, **rest)

    def _observe(self, segment: Segment, which: slice) -> None:
        for name, value in segment.obs.items():
            self._obs[name].append(value[which])
        for name in _OBSERVED:
            self._rest[name].append(getattr(segment, name)[which])
