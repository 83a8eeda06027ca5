"""Collector of what remote actors send: transitions for the replay, steps for the trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
import numpy as np

from algorithm.agents.roles import Recorder
from algorithm.core.data import Episode, Int, State
from algorithm.core.timing import Stopwatch
from algorithm.core.wording import Rows
from ds.net.ingest import ActorLeft, IngestQueue
from ds.net.protocol import StepMessage
from ds.records import SavedRegistry
from ds.registry import ActorRegistry
from ds.service import ParameterStore

MAX_ROWS = 16

_AGENTS = 2**32
"""Number of streams reserved for each actor: actor 0 has the streams of a single process."""

Stream = tuple[str, int]
"""(behaviour, number of the stream)"""


class _Source(msgspec.Struct):
    """An actor: the number of its last stored message, and behaviour -> its agents after that."""

    number: int
    stored: int
    agents: dict[str, Int]

    @property
    def first(self) -> int:
        """The actor's first stream."""
        return self.number * _AGENTS

    def streams(self) -> Iterator[Stream]:
        """Yield (behaviour, stream) of each agent."""
        return (
            (name, self.first + agent) for name, agents in self.agents.items() for agent in agents.tolist()
        )

    def close(self, agents: Mapping[str, Int], recorders: Mapping[str, Recorder]) -> None:
        """End open episodes of ``agents``, by behaviour."""
        for name, of_one in agents.items():
            for stream in (of_one + self.first).tolist():
                recorders[name].close(stream)

    def change(self, agents: Mapping[str, Int], recorders: Mapping[str, Recorder]) -> bool:
        """Replace the agents; end the open episodes of those that are not there any more.

        Returns whether any has come or gone.
        """
        before = self.agents
        if before.keys() == agents.keys() and all(before[k].tobytes() == agents[k].tobytes() for k in agents):
            return False
        self.agents = {name: of_one.copy() for name, of_one in agents.items()}
        gone = {name: np.setdiff1d(old, agents.get(name, old[:0])) for name, old in before.items()}
        self.close(gone, recorders)
        return True

    def episodes(self, message: StepMessage) -> Iterator[Episode]:
        """Yield the episodes that ended with a message."""
        for behaviour, ended in message.episodes.items():
            columns = ((ended.agents + self.first).tolist(), ended.returns.tolist(), ended.lengths.tolist())
            for stream, total, length in zip(*columns, strict=True):
                yield Episode(behaviour, stream, total, length)


def _array(annotation: object, value: object) -> Int:
    """Return the agents in a state, a list. Raises ValueError or TypeError for anything else."""
    return np.array(msgspec.convert(value, list[int]), np.int64)


class _Unreleased(msgspec.Struct):
    """Steps of a stored message that the trainer has not been given yet, and episodes that end with them.

    at_once: of each behaviour, as a step of all of the actor's agents
    """

    steps: dict[str, int]  # by behaviour
    at_once: dict[str, int]
    episodes: list[Episode]


class _Saved(msgspec.Struct):
    """State of the collector."""

    steps: dict[str, int]
    unreleased: _Unreleased | None
    sources: list[_Source]
    actors: SavedRegistry
    version: int


class RemoteCollector:
    """Transition source whose environments are stepped by actors, a :class:`~.roles.Collector`.

    A message is stored at once, and its steps are handed out a step of all agents at a time, so that
    evaluations, summaries and checkpoints come when they are due, however long the message is.

    recorders:   of the transitions, by behaviour
    before_step: called first in every step; publishes weights if that is due
    watch:       stopwatch of waiting and storing
    wait:        seconds that a step waits for a message at most
    whole:       hand out all steps of a message at once: it is one step of all agents
    max_lag:     versions that the weights of a behaviour's steps may be behind; None: any
    """

    def __init__(
        self,
        queue: IngestQueue,
        actors: ActorRegistry,
        parameters: ParameterStore,
        recorders: Mapping[str, Recorder],
        *,
        before_step: Callable[[], None],
        watch: Stopwatch,
        wait: float,
        whole: bool = False,
        max_lag: Mapping[str, int | None],
    ) -> None:
        self._queue, self._actors, self._recorders = queue, actors, recorders
        self._parameters = parameters
        self._before_step, self._watch, self._wait = before_step, watch, wait
        self._sources: dict[int, _Source] = {}  # by the actor's number
        self.agents: frozenset[Stream] = frozenset()
        """(behaviour, stream) of all agents that act now, according to the last messages."""

        self._whole, self._max_lag = whole, max_lag
        self.behaviour_steps = dict.fromkeys(recorders, 0)
        self._unreleased: _Unreleased | None = None

    @property
    def steps(self) -> int:
        """Steps that the trainer has been given."""
        return sum(self.behaviour_steps.values())

    def step(self) -> list[Episode]:
        """Return a step of all agents of an actor; if none is pending, wait a moment for the next message.

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
        """Announce lessons with the next answers; return whether a reset has ended all episodes.

        That holds for an actor in step alone: of others, episodes that ended before are still on the way.
        """
        self._parameters.lessons = dict(lessons)
        return reset and self._whole

    def state(self) -> State:
        """Return stored and pending steps, and the state of all actors."""
        saved = _Saved(
            steps=self.behaviour_steps,
            unreleased=self._unreleased,
            sources=[*self._sources.values()],
            actors=self._actors.state(),
            version=self._parameters.newest,
        )
        return State(meta=msgspec.to_builtins(saved, str_keys=True, enc_hook=np.ndarray.tolist))

    def load_state(self, state: State) -> list[str]:
        """Restore; actors that return continue, episodes of the others end as truncated.

        Raises KeyError or ValueError for what is no such state.
        """
        try:
            saved = msgspec.convert(state.meta, _Saved, str_keys=True, dec_hook=_array)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error
        self._unreleased = saved.unreleased
        self._sources = {source.number: source for source in saved.sources}
        self._update_agents()
        self._actors.load_state(saved.actors)
        self._parameters.resume(saved.version)
        for number in sorted(self._sources.keys() - self._actors.awaited):
            self._queue.left(number)  # the mark that it has left was lost with the queue
        self.behaviour_steps = {name: saved.steps.get(name, 0) for name in self._recorders}
        if not saved.actors.living:
            return []
        return ["data that actors sent after the checkpoint is lost; it is counted when they reconnect"]

    def must_pause(self) -> bool:
        """Return False: actors act in other processes."""
        return False

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
        """Wait for the next message and store it; expire silent actors, and close one that has left."""
        self._actors.expire()
        item = self._queue.take(self._wait)
        self._watch.lap("wait")
        if isinstance(item, ActorLeft):
            self._close(self._sources.pop(item.number, None))
        elif item is not None:
            self._store(item.number, item.message)
        self._watch.lap("store")

    def _store(self, number: int, message: StepMessage) -> None:
        source = self._sources.get(number)
        if source is None:
            source = self._sources[number] = _Source(number, message.number - 1, {})
        if message.number != source.stored + 1:
            self._close(source)  # something of them is lost
        source.stored = message.number
        source.close(message.closed, self._recorders)
        # A synchronous actor waits for the newest weights. After a kill it may have them from before.
        lag = 0 if self._whole else self._parameters.lag(message.version)
        taken, outdated = {}, 0
        for behaviour, steps in message.steps.items():
            most, recorder = self._max_lag.get(behaviour), self._recorders[behaviour]
            if most is not None and lag > most:
                source.close({behaviour: np.unique(steps.streams)}, self._recorders)
                outdated += len(steps)
            else:
                recorder.add_steps(steps.moved(source.first, lag))
                taken[behaviour] = len(steps)
        if source.change(message.agents, self._recorders):
            self._update_agents()
        self._actors.stored(message, outdated=outdated)
        at_once = {name: max(1, len(message.agents.get(name, ()))) for name in taken}
        self._unreleased = _Unreleased(taken, at_once, [*source.episodes(message)])

    def _close(self, source: _Source | None) -> None:
        """End what is open of an actor that has left, or of which something is lost."""
        if source is not None:
            source.change({}, self._recorders)
            self._update_agents()

    def _update_agents(self) -> None:
        self.agents = frozenset(stream for source in self._sources.values() for stream in source.streams())

    def _release(self) -> list[Episode]:
        left = self._unreleased
        if left is None:
            return []
        for name, steps in left.steps.items():
            now = steps if self._whole else min(steps, left.at_once[name])
            self.behaviour_steps[name] += now
            left.steps[name] -= now
        if any(left.steps.values()):
            return []
        self._unreleased = None
        return left.episodes
