"""Transitions of an actor's agents, written into messages for the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from algorithm.core.data import StepBatch
from ds.net.protocol import TrajectoryChunk, TrajectoryMessage, Transitions

if TYPE_CHECKING:  # an actor's messages are packed and sent without torch
    from algorithm.agents.roles import Episode

Key = tuple[str, int]
"""Behaviour and agent."""

_OBSERVED = ("action_mask", "carry")
"""One row for each observation, as ``obs``."""

_BETWEEN = ("action", "z", "behaviour_logp", "reward", "terminated", "truncated")
"""One row for each transition."""


@dataclass
class _Chunk:
    """Consecutive transitions of one agent: rows of steps; without any its episode ends where it is."""

    key: Key
    order: int  # when it began
    version: int  # of the weights that made its first transition
    rows: list[tuple[StepBatch, int]] = field(default_factory=list)
    cut_off: bool = False  # the episode ends behind its last transition, as truncated

    def packed(self) -> TrajectoryChunk:
        """Return it as it is sent. The observation between two transitions is there once."""
        if not self.rows:
            return TrajectoryChunk(*self.key, None)
        first, place = self.rows[0]
        obs = {
            name: np.stack([value[place], *(steps.next_obs[name][row] for steps, row in self.rows)])
            for name, value in first.obs.items()
        }
        rest = {name: np.stack([getattr(steps, name)[row] for steps, row in self.rows]) for name in _BETWEEN}
        for name in _OBSERVED:
            after = (getattr(steps, f"next_{name}")[row] for steps, row in self.rows)
            rest[name] = np.stack([getattr(first, name)[place], *after])
        rest["truncated"][-1] |= self.cut_off
        return TrajectoryChunk(
            *self.key, Transitions(start_step=int(first.start_steps[place]), obs=obs, **rest)
        )


@dataclass
class _Stream:
    """An open episode."""

    next_step: int = 0
    sent: bool = False  # there were chunks before this one
    chunk: _Chunk | None = None


@dataclass
class _Group:
    """Content of a message."""

    chunks: list[_Chunk] = field(default_factory=list)
    episodes: list[tuple[str, int, float, int]] = field(default_factory=list)
    gone: list[Key] = field(default_factory=list)


class TrajectoryWriter:
    """Writer of all behaviours' transitions: a chunk ends with its episode, or when it is long enough.

    max_length: transitions in a chunk; each further chunk of an episode begins with the observation that the
                one before ends with
    channels:   all of agent i goes through channel i mod ``channels``, where the order is kept

    ``version`` is that of the weights that act; it never falls.
    """

    def __init__(self, *, max_length: int, channels: int) -> None:
        self.version = 0
        self._max_length, self._channels = max_length, channels
        self._streams: dict[Key, _Stream] = {}
        self._ready: list[_Chunk] = []
        self._episodes: list[Episode] = []
        self._order = count()  # of chunks
        self._known: set[Key] = set()  # agents with transitions that are not gone
        self._gone: list[Key] = []  # since the last message

    def recorder(self, behaviour: str) -> BehaviourRecorder:
        """Return the :class:`~algorithm.agents.roles.Recorder` of the agents of one behaviour."""
        return BehaviourRecorder(self, behaviour)

    def add(self, behaviour: str, steps: StepBatch) -> None:
        """Add a transition of each of several agents.

        One that does not follow the agent's last one ends what was open as truncated, as in the replay.
        """
        own = steps.rows(np.arange(len(steps)))  # copies: environments write into the arrays again
        ends = (own.terminated | own.truncated).tolist()
        places = zip(own.streams.tolist(), own.start_steps.tolist(), strict=True)
        for row, (agent, start) in enumerate(places):
            key = (behaviour, agent)
            self._known.add(key)
            stream = self._streams.get(key)
            if stream is None or stream.next_step != start:
                self.close(*key)
                stream = self._streams[key] = _Stream()
            stream.next_step = start + 1
            if stream.chunk is None:
                stream.chunk = _Chunk(key, next(self._order), self.version)
            stream.chunk.rows.append((own, row))
            if ends[row]:
                del self._streams[key]
            if ends[row] or len(stream.chunk.rows) >= self._max_length:
                self._complete(stream)

    def close(self, behaviour: str, agent: int) -> None:
        """End the agent's open episode as truncated; does nothing if there is none."""
        stream = self._streams.pop((behaviour, agent), None)
        if stream is None:
            return
        if stream.chunk is not None:
            stream.chunk.cut_off = True
            self._complete(stream)
        elif stream.sent:
            self._ready.append(_Chunk((behaviour, agent), next(self._order), self.version))

    def flush(
        self, *, agents: frozenset[Key], episodes: Sequence[Episode], whole: bool = False
    ) -> list[TrajectoryMessage]:
        """Return messages, without actor and number, of complete chunks. Called after every step.

        agents:   all that are there after the last step, waiting or not
        episodes: that ended with the last step
        whole:    all there is in one message, in the order of addition, where there is one channel; else
                  a message for each chunk, so that none is larger than a chunk
        """
        if gone_now := self._known - agents:
            self._gone += sorted(gone_now)
            self._known -= gone_now
        self._episodes += episodes
        groups = [_Group([chunk]) for chunk in self._ready]
        if whole:
            for stream in self._streams.values():
                self._complete(stream)
            groups = [_Group(sorted(self._ready, key=lambda one: one.order))]
        self._ready = []
        if groups:
            self._distribute(groups, agents)
        return [self._packed(group) for group in groups]

    def finish(self) -> list[TrajectoryMessage]:
        """Return the last messages; open episodes end as truncated."""
        for behaviour, agent in list(self._streams):
            self.close(behaviour, agent)
        alone = not self._ready and bool(self._episodes)
        return self.flush(agents=frozenset(), episodes=(), whole=alone)

    def _complete(self, stream: _Stream) -> None:
        """Complete the stream's chunk, if there is one."""
        if stream.chunk is not None:
            self._ready.append(stream.chunk)
            stream.chunk, stream.sent = None, True

    def _distribute(self, groups: list[_Group], agents: frozenset[Key]) -> None:
        """Give each group its episodes and agents that are gone.

        They go with the agent's own transitions, or behind them: only its channel keeps their order.
        """
        of_agent = {chunk.key: group for group in groups for chunk in group.chunks}
        of_channel = {chunk.key[1] % self._channels: group for group in groups for chunk in group.chunks}
        for one in self._episodes:
            group = of_agent.get((one.behaviour, one.agent), groups[-1])
            group.episodes.append((one.behaviour, one.agent, one.total, one.length))
        for key in self._gone:
            if key not in agents:  # else it is another agent's by now
                of_channel.get(key[1] % self._channels, groups[-1]).gone.append(key)
        self._episodes, self._gone = [], []

    def _packed(self, group: _Group) -> TrajectoryMessage:
        chunks = group.chunks
        return TrajectoryMessage(
            actor="",
            number=0,
            dropped=0,
            channel=chunks[0].key[1] % self._channels if chunks else 0,
            version=min((chunk.version for chunk in chunks), default=self.version),
            chunks=tuple(chunk.packed() for chunk in chunks),
            episodes=tuple(group.episodes),
            gone=tuple(group.gone),
        )


class BehaviourRecorder:
    """Recorder of one behaviour."""

    def __init__(self, writer: TrajectoryWriter, behaviour: str) -> None:
        self._writer, self._behaviour = writer, behaviour

    def add_steps(self, steps: StepBatch) -> None:
        """Add a step of the behaviour's agents to the messages."""
        self._writer.add(self._behaviour, steps)

    def close(self, stream: int) -> None:
        """End the stream's episode as truncated."""
        self._writer.close(self._behaviour, stream)
