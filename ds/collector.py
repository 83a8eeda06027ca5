"""Collector of what remote actors send: transitions for the replay, steps for the trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from algorithm.agents.roles import Episode, SegmentRecorder
from algorithm.core.data import State
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from ds.checking import MAX_ENVIRONMENTS
from ds.ingest import ActorLeft, IngestQueue
from ds.parameters import ParameterStore
from ds.protocol import TrajectoryChunk, TrajectoryMessage
from ds.registry import ActorRegistry

MAX_ROWS = 16


@dataclass
class _PendingSteps:
    """Steps of a stored message that the trainer has not been given yet."""

    steps: dict[str, int]  # by behaviour
    episodes: list[Episode]

    @property
    def total(self) -> int:
        """Steps of all behaviours."""
        return sum(self.steps.values())


class RemoteCollector:
    """Transition source whose environments are stepped by actors, a :class:`~.roles.Collector`.

    A message is stored at once, and its steps are handed out one at a time, so that evaluations, summaries
    and checkpoints come when they are due, however long the message is.

    recorders:   of the transitions, by behaviour
    before_step: called first in every step; publishes weights if that is due
    watch:       stopwatch of waiting and storing
    wait:        seconds that a step waits for a message at most
    whole:       hand out all steps of a message at once: it is one step of all agents
    max_lag:     versions that the weights of a behaviour's segment may be behind; None: any
    silence:     transitions of an actor, for each of its agents, after which an agent without any has left,
                 even if the word of it was lost: several times the longest segment
    """

    def __init__(
        self,
        queue: IngestQueue,
        actors: ActorRegistry,
        parameters: ParameterStore,
        recorders: Mapping[str, SegmentRecorder],
        *,
        before_step: Callable[[], None],
        watch: Stopwatch,
        wait: float,
        whole: bool = False,
        max_lag: Mapping[str, int | None] | None = None,
        silence: int = 10_000,
    ) -> None:
        self._queue, self._actors, self._recorders = queue, actors, recorders
        self._parameters = parameters
        self._before_step, self._watch, self._wait = before_step, watch, wait
        self._streams = AgentTracker(silence)
        self._whole, self._max_lag = whole, dict(max_lag or {})
        self.behaviour_steps = dict.fromkeys(recorders, 0)
        self._unreleased: _PendingSteps | None = None
        self._last: TrajectoryMessage | None = None

    @property
    def steps(self) -> int:
        """Steps that the trainer has been given."""
        return sum(self.behaviour_steps.values())

    @property
    def agents(self) -> frozenset[tuple[str, int]]:
        """(behaviour, stream) of all agents that act now, as far as messages say."""
        return self._streams.agents

    def step(self) -> list[Episode]:
        """Return one step; if none is pending, take the next message, for which it waits a moment.

        Returns the episodes that ended with the last step of a message, else none.
        """
        self._before_step()
        self._watch.lap("other")
        if self._unreleased is None:
            self._next_message()
        return self._release()

    def truncate(self) -> None:
        """Do nothing: actors end their episodes themselves."""

    def state(self) -> State:
        """Return stored and pending steps, and the state of all actors."""
        left = self._unreleased
        return State(
            meta={
                "steps": dict(self.behaviour_steps),
                "unreleased": None if left is None else _as_json(left),
                "streams": self._streams.state(),
                "actors": self._actors.state(),
                "version": self._parameters.newest,
            }
        )

    def load_state(self, state: State) -> list[str]:
        """Restore; actors that return continue, episodes of the others end as truncated.

        Raises KeyError, TypeError or ValueError for what is no such state.
        """
        meta = state.meta
        left = meta["unreleased"]
        self._unreleased = None if left is None else _of_json(left)
        self._streams.load_state(meta["streams"])
        self._actors.load_state(meta["actors"])
        self._parameters.resume(int(meta["version"]))
        for number in sorted(self._streams.numbers - self._actors.awaited):
            self._queue.left(number)  # the word that it has left waited where the messages did
        self.behaviour_steps = {name: int(meta["steps"].get(name, 0)) for name in self._recorders}
        if not meta["actors"]["living"]:
            return []
        return ["what actors sent after the checkpoint is lost; it is counted when they come back"]

    def metrics(self) -> dict[str, float]:
        """Return values to log."""
        return self._actors.metrics() | {"ds/waiting": float(len(self._queue))}

    def rows(self) -> Rows:
        """Return a line per actor; of many only the first ones."""
        rows = self._actors.rows()
        if len(rows) > MAX_ROWS:
            return [*rows[:MAX_ROWS], ("actors", f"and {len(rows) - MAX_ROWS} more")]
        return rows

    def _next_message(self) -> None:
        if self._last is not None:
            self._queue.done(self._last)
            self._last = None
        for number in self._actors.expire():
            self._queue.left(number)
        item = self._queue.take(self._wait)
        self._watch.lap("wait")
        if isinstance(item, ActorLeft):
            for behaviour, stream in self._streams.left(item.number):
                self._recorders[behaviour].close(stream)
        elif item is not None:
            self._store(*item)
        self._watch.lap("store")

    def _store(self, number: int, came: TrajectoryMessage) -> None:
        # A synchronous actor waits for the newest weights. After a kill it may have them from before.
        lag = 0 if self._whole else self._parameters.lag(came.version)
        message = self._without_outdated(came, lag)
        for chunk in message.chunks:
            recorder, stream = self._recorders[chunk.behaviour], stream_of(number, chunk.agent)
            if chunk.transitions is None:
                recorder.close(stream)
            else:
                recorder.add(chunk.transitions.segment(stream, lag=lag))
        for behaviour, stream in self._streams.heard(number, message):
            self._recorders[behaviour].close(stream)
        self._actors.stored(came, outdated=came.steps - message.steps)
        episodes = [
            Episode(behaviour, stream_of(number, agent), total, length)
            for behaviour, agent, total, length in message.episodes
        ]
        taken = dict.fromkeys((chunk.behaviour for chunk in message.chunks), 0)
        for chunk in message.chunks:
            taken[chunk.behaviour] += 0 if chunk.transitions is None else chunk.transitions.length
        self._unreleased = _PendingSteps(taken, episodes)
        self._last = came

    def _without_outdated(self, message: TrajectoryMessage, lag: int) -> TrajectoryMessage:
        """Return it without segments of behaviours whose limit ``lag`` passes; their episodes end there."""
        outdated = {name for name, most in self._max_lag.items() if most is not None and lag > most}
        if outdated.isdisjoint(chunk.behaviour for chunk in message.chunks):
            return message
        chunks = [
            TrajectoryChunk(chunk.behaviour, chunk.agent, None) if chunk.behaviour in outdated else chunk
            for chunk in message.chunks
        ]
        return replace(message, chunks=tuple(chunks))

    def _release(self) -> list[Episode]:
        left = self._unreleased
        if left is None:
            return []
        for name, steps in left.steps.items():
            now = steps if self._whole else min(steps, 1)
            self.behaviour_steps[name] += now
            left.steps[name] -= now
            if now and not self._whole:
                break
        if left.total:
            return []
        self._unreleased = None
        return left.episodes


def _as_json(left: _PendingSteps) -> dict[str, Any]:
    episodes = [[one.behaviour, one.agent, one.total, one.length] for one in left.episodes]
    return {"steps": dict(left.steps), "episodes": episodes}


def _of_json(left: Mapping[str, Any]) -> _PendingSteps:
    episodes = [Episode(str(b), int(agent), float(total), int(n)) for b, agent, total, n in left["episodes"]]
    return _PendingSteps({str(name): int(steps) for name, steps in left["steps"].items()}, episodes)


Stream = tuple[str, int]
"""(behaviour, number of the stream)"""

MAX_STREAMS = MAX_ENVIRONMENTS
"""Maximum number of agents of one actor; messages without a step could otherwise add any number."""

_AGENTS = 2**32
"""Number of streams reserved for each actor."""


def stream_of(number: int, agent: int) -> int:
    """Return the stream of an agent of actor ``number``; actor 0 has the streams of a single process."""
    return number * _AGENTS + agent


@dataclass
class _Source:
    """One actor: its transitions, the last one of each agent, and open episodes."""

    steps: int = 0
    heard: dict[Stream, int] = field(
        default_factory=dict
    )  # agent -> step of its last transition, oldest first
    open: dict[Stream, None] = field(default_factory=dict)  # likewise

    def drop_inactive(self, silence: int) -> None:
        while self.heard:
            first = next(iter(self.heard))
            if self.heard[first] > self.steps - silence * len(self.heard) and len(self.heard) <= MAX_STREAMS:
                return
            del self.heard[first]


class AgentTracker:
    """Agents and open episodes of all actors that have sent messages and have not left.

    silence: transitions of an actor, for each of its agents, after which an agent without any has left

    Of one actor at most :data:`MAX_STREAMS` agents are kept; above that the least recently active has left.
    """

    def __init__(self, silence: int) -> None:
        self._silence = silence
        self._sources: dict[int, _Source] = {}
        self._agents: frozenset[Stream] | None = frozenset()

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the actors."""
        return frozenset(self._sources)

    @property
    def agents(self) -> frozenset[Stream]:
        """All agents that act, as far as messages say."""
        if self._agents is None:
            sources = self._sources.values()
            self._agents = frozenset().union(*(source.heard for source in sources))
        return self._agents

    def heard(self, number: int, message: TrajectoryMessage) -> list[Stream]:
        """Note a stored message of actor ``number``; return open episodes above the limit, which end."""
        source = self._sources.setdefault(number, _Source())
        source.steps += message.steps
        ended = []
        for chunk in message.chunks:
            stream, segment = (chunk.behaviour, stream_of(number, chunk.agent)), chunk.transitions
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
        for behaviour, agent in message.gone:
            source.heard.pop((behaviour, stream_of(number, agent)), None)
        source.drop_inactive(self._silence)
        self._agents = None
        return ended

    def left(self, number: int) -> list[Stream]:
        """Remove actor ``number``; return its open episodes."""
        self._agents = None
        source = self._sources.pop(number, _Source())
        return sorted(source.open)

    def state(self) -> list[dict[str, Any]]:
        """Return the state as JSON."""
        return [
            {
                "number": number,
                "steps": source.steps,
                "heard": [[*stream, at] for stream, at in source.heard.items()],
                "open": [list(stream) for stream in sorted(source.open)],
            }
            for number, source in self._sources.items()
        ]

    def load_state(self, state: list[Mapping[str, Any]]) -> None:
        """Restore. KeyError, TypeError or ValueError for an invalid state."""
        self._agents = None
        self._sources = {
            int(one["number"]): _Source(
                steps=int(one["steps"]),
                heard={(str(behaviour), int(stream)): int(at) for behaviour, stream, at in one["heard"]},
                open={(str(behaviour), int(stream)): None for behaviour, stream in one["open"]},
            )
            for one in state
        }
