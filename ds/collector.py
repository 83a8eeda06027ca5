"""Collector of what remote actors send: transitions for the replay, steps for the trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from algorithm.agents.roles import Episode, SegmentRecorder
from algorithm.core.data import State
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from ds.checking import MAX_ENVIRONMENTS
from ds.net.ingest import ActorLeft, IngestQueue
from ds.net.protocol import TrajectoryMessage
from ds.records import SavedRegistry, SavedSource
from ds.registry import ActorRegistry
from ds.service import ParameterStore

MAX_ROWS = 16

MAX_STREAMS = MAX_ENVIRONMENTS
"""Maximum number of agents of one actor; messages without a step could otherwise add any number."""

_AGENTS = 2**32
"""Number of streams reserved for each actor."""

Stream = tuple[str, int]
"""(behaviour, number of the stream)"""


def stream_of(number: int, agent: int) -> int:
    """Return the stream of an agent of actor ``number``; actor 0 has the streams of a single process."""
    return number * _AGENTS + agent


class _Unreleased(msgspec.Struct):
    """Steps of a stored message that the trainer has not been given yet, and episodes that end with them."""

    steps: dict[str, int]  # by behaviour
    episodes: list[Episode]


class _Saved(msgspec.Struct):
    """State of the collector."""

    steps: dict[str, int]
    unreleased: _Unreleased | None
    sources: list[SavedSource]
    actors: SavedRegistry
    version: int


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
        max_lag: Mapping[str, int | None],
        silence: int,
    ) -> None:
        self._queue, self._actors, self._recorders = queue, actors, recorders
        self._parameters = parameters
        self._before_step, self._watch, self._wait = before_step, watch, wait
        self._agents = AgentTracker(silence)
        self._whole, self._max_lag = whole, max_lag
        self.behaviour_steps = dict.fromkeys(recorders, 0)
        self._unreleased: _Unreleased | None = None

    @property
    def steps(self) -> int:
        """Steps that the trainer has been given."""
        return sum(self.behaviour_steps.values())

    @property
    def agents(self) -> frozenset[Stream]:
        """(behaviour, stream) of all agents that act now, as far as messages say."""
        return self._agents.agents

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

    def renew_parameters(self, lessons: Mapping[str, str], *, reset: bool = False) -> bool:
        """Let the actors do so, by their next answers; they know themselves what ends with a reset.

        Unless they are in step, episodes that ended before it are still on the way.
        """
        self._parameters.lessons = dict(lessons)
        return reset and self._whole

    def state(self) -> State:
        """Return stored and pending steps, and the state of all actors."""
        saved = _Saved(
            steps=self.behaviour_steps,
            unreleased=self._unreleased,
            sources=self._agents.state(),
            actors=self._actors.state(),
            version=self._parameters.newest,
        )
        return State(meta=msgspec.to_builtins(saved, str_keys=True))

    def load_state(self, state: State) -> list[str]:
        """Restore; actors that return continue, episodes of the others end as truncated.

        Raises KeyError or ValueError for what is no such state.
        """
        try:
            saved = msgspec.convert(state.meta, _Saved, str_keys=True)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error
        self._unreleased = saved.unreleased
        self._agents.load_state(saved.sources)
        self._actors.load_state(saved.actors)
        self._parameters.resume(saved.version)
        for number in sorted(self._agents.numbers - self._actors.awaited):
            self._queue.left(number)  # the word that it has left waited where the messages did
        self.behaviour_steps = {name: saved.steps.get(name, 0) for name in self._recorders}
        if not saved.actors.living:
            return []
        return ["data that actors sent after the checkpoint is lost; it is counted when they reconnect"]

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
        self._actors.expire()
        item = self._queue.take(self._wait)
        self._watch.lap("wait")
        if isinstance(item, ActorLeft):
            self._close(self._agents.left(item.number))
        elif item is not None:
            self._store(item.number, item.message)
        self._watch.lap("store")

    def _store(self, number: int, came: TrajectoryMessage) -> None:
        self._close(self._agents.interrupted(number, came))
        # A synchronous actor waits for the newest weights. After a kill it may have them from before.
        lag = 0 if self._whole else self._parameters.lag(came.version)
        message = came.without(
            [name for name, most in self._max_lag.items() if most is not None and lag > most]
        )
        taken = dict.fromkeys((chunk.behaviour for chunk in message.chunks), 0)
        for chunk in message.chunks:
            stream = stream_of(number, chunk.agent)
            if chunk.transitions is None:
                self._recorders[chunk.behaviour].close(stream)
            else:
                self._recorders[chunk.behaviour].add(chunk.transitions.segment(stream, lag=lag))
                taken[chunk.behaviour] += chunk.transitions.length
        self._close(self._agents.heard(number, message))
        self._actors.stored(came, outdated=came.steps - message.steps)
        episodes = [
            Episode(behaviour, stream_of(number, agent), total, length)
            for behaviour, agent, total, length in message.episodes
        ]
        self._unreleased = _Unreleased(taken, episodes)

    def _close(self, streams: list[Stream]) -> None:
        """End the open episodes of agents that are not there any more, or whose transitions are lost."""
        for behaviour, stream in streams:
            self._recorders[behaviour].close(stream)

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
        if any(left.steps.values()):
            return []
        self._unreleased = None
        return left.episodes


class AgentTracker:
    """Agents of all actors that have sent messages and have not left.

    silence: transitions of an actor, for each of its agents, after which an agent without any has left

    Of one actor at most :data:`MAX_STREAMS` agents are kept; above that the least recently active has left.
    """

    def __init__(self, silence: int) -> None:
        self._silence = silence
        self._steps: dict[int, int] = {}  # of each actor
        self._stored: dict[int, dict[int, int]] = {}  # and of each channel the number of its last message
        self._heard: dict[int, dict[Stream, tuple[int, int]]] = {}
        """Channel of each agent, by actor, and the actor's steps at its last one, oldest first."""

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the actors."""
        return frozenset(self._heard)

    @property
    def agents(self) -> frozenset[Stream]:
        """All agents that act, as far as messages say."""
        return frozenset().union(*self._heard.values())

    def interrupted(self, number: int, message: TrajectoryMessage) -> list[Stream]:
        """Note a message that is to be stored; return its channel's agents if some before it are lost."""
        stored = self._stored.setdefault(number, {})
        last = stored.get(message.channel, message.number - 1)
        stored[message.channel] = message.number
        if message.number == last + 1:
            return []
        heard = self._heard[number]
        return [stream for stream, (channel, _) in heard.items() if channel == message.channel]

    def heard(self, number: int, message: TrajectoryMessage) -> list[Stream]:
        """Note a stored message of actor ``number``; return agents that are not there any more."""
        heard = self._heard.setdefault(number, {})
        steps = self._steps[number] = self._steps.get(number, 0) + message.steps
        for chunk in message.chunks:
            if chunk.transitions is not None:
                stream = (chunk.behaviour, stream_of(number, chunk.agent))
                heard.pop(stream, None)
                heard[stream] = message.channel, steps
        gone = [(behaviour, stream_of(number, agent)) for behaviour, agent in message.gone]
        for stream in gone:
            heard.pop(stream, None)
        while heard:
            first = next(iter(heard))
            if heard[first][1] > steps - self._silence * len(heard) and len(heard) <= MAX_STREAMS:
                break
            del heard[first]
            gone.append(first)
        return gone

    def left(self, number: int) -> list[Stream]:
        """Remove actor ``number``; return its agents."""
        self._steps.pop(number, None)
        self._stored.pop(number, None)
        return sorted(self._heard.pop(number, {}))

    def state(self) -> list[SavedSource]:
        """Return what :meth:`load_state` continues from."""
        return [
            SavedSource(
                number, self._steps[number], stored, [(*k, *v) for k, v in self._heard[number].items()]
            )
            for number, stored in self._stored.items()
        ]

    def load_state(self, state: list[SavedSource]) -> None:
        """Continue from what :meth:`state` returned."""
        self._steps = {source.number: source.steps for source in state}
        self._stored = {source.number: source.stored for source in state}
        self._heard = {
            source.number: {(name, stream): (channel, at) for name, stream, channel, at in source.heard}
            for source in state
        }
