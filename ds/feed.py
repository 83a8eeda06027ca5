"""What actors send, as the trainer sees it: steps of a rollout that somebody else has taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from algorithm.data import State
from algorithm.roles import Episode, Recorder
from algorithm.run.console import Rows
from algorithm.timing import Stopwatch
from ds.actors import Actors
from ds.board import Board
from ds.inbox import Inbox, Left
from ds.protocol import Parcel
from ds.streams import Streams, stream_of

MAX_ROWS = 16


@dataclass(frozen=True)
class _Unreleased:
    """What the agents have of a parcel, and the trainer has not been told of."""

    steps: int
    stride: int
    episodes: list[Episode]


class RemoteCollector:
    """A :class:`~algorithm.roles.Collector` of an inbox.

    A parcel is stored at once, and its steps are handed out a step of its environments at a time, so that
    evaluations, summaries and checkpoints come when they are due, however long the parcel is.

    recorders:   who stores, by behaviour
    before_step: called first in every step; publishes weights if that is due
    watch:       told when waiting and storing end
    wait:        seconds that a step waits for a parcel at most
    silence:     steps of all of an actor's environments after which an agent that was not heard of has left:
                 more than the longest segment; 1 where a parcel is one step of all agents
    """

    def __init__(
        self,
        inbox: Inbox,
        actors: Actors,
        board: Board,
        recorders: Mapping[str, Recorder],
        *,
        before_step: Callable[[], None],
        watch: Stopwatch,
        wait: float,
        silence: int = 1000,
    ) -> None:
        self._inbox, self._actors, self._recorders = inbox, actors, recorders
        self._board = board
        self._before_step, self._watch, self._wait = before_step, watch, wait
        self._streams = Streams(silence)
        self._steps = 0
        self._unreleased: _Unreleased | None = None
        self._last: Parcel | None = None

    @property
    def steps(self) -> int:
        """Environment steps that the trainer has been told of."""
        return self._steps

    @property
    def agents(self) -> frozenset[tuple[str, int]]:
        """(behaviour, stream) of everybody who acts now, as far as it is known here."""
        return self._streams.agents

    def step(self) -> list[Episode]:
        """Hand out one step; if all have been, take the next parcel, for which it waits a moment.

        Returns the episodes that ended with the last step of a parcel, else none.
        """
        self._before_step()
        self._watch.lap("other")
        if self._unreleased is None:
            self._next_parcel()
        return self._release()

    def truncate(self) -> None:
        """Nothing: actors end their episodes themselves."""

    def state(self) -> State:
        """What the agents have, what of it has been handed out, and who has sent it."""
        left = self._unreleased
        return State(
            meta={
                "steps": self._steps,
                "unreleased": None if left is None else _as_json(left),
                "streams": self._streams.state(),
                "actors": self._actors.state(),
                "version": self._board.newest,
            }
        )

    def load_state(self, state: State) -> list[str]:
        """Go on; actors that were here come back by themselves, or their episodes end as truncated.

        Raises KeyError, TypeError or ValueError for what is no such state.
        """
        meta = state.meta
        left = meta["unreleased"]
        self._unreleased = None if left is None else _of_json(left)
        self._streams.load_state(meta["streams"])
        self._actors.load_state(meta["actors"])
        self._board.resume(int(meta["version"]))
        for number in sorted(self._streams.numbers - self._actors.awaited):
            self._inbox.left(number)  # the word that it has left waited where the parcels did
        self._steps = int(meta["steps"])
        if not meta["actors"]["living"]:
            return []
        return ["what actors sent after the checkpoint is lost; it is counted when they come back"]

    def metrics(self) -> dict[str, float]:
        """Values to log."""
        return self._actors.metrics() | {"ds/waiting": float(len(self._inbox))}

    def rows(self) -> Rows:
        """A line on each actor; of many only the first ones."""
        rows = self._actors.rows()
        if len(rows) > MAX_ROWS:
            return [*rows[:MAX_ROWS], ("actors", f"and {len(rows) - MAX_ROWS} more")]
        return rows

    def _next_parcel(self) -> None:
        if self._last is not None:
            self._inbox.done(self._last)
            self._last = None
        for number in self._actors.expire():
            self._inbox.left(number)
        item = self._inbox.take(self._wait)
        self._watch.lap("wait")
        if isinstance(item, Left):
            for behaviour, stream in self._streams.left(item.number):
                self._recorders[behaviour].close(stream)
        elif item is not None:
            self._store(*item)
        self._watch.lap("store")

    def _store(self, number: int, parcel: Parcel) -> None:
        for part in parcel.parts:
            recorder, stream = self._recorders[part.behaviour], stream_of(number, part.agent)
            if part.segment is None:
                recorder.close(stream)
            else:
                recorder.add(replace(part.segment, stream=stream))
        for behaviour, stream in self._streams.heard(number, parcel):
            self._recorders[behaviour].close(stream)
        self._actors.stored(parcel)
        episodes = [
            Episode(behaviour, stream_of(number, agent), total, length)
            for behaviour, agent, total, length in parcel.episodes
        ]
        self._unreleased = _Unreleased(parcel.steps, parcel.stride, episodes)
        self._last = parcel

    def _release(self) -> list[Episode]:
        left = self._unreleased
        if left is None:
            return []
        now = min(left.steps, left.stride)
        self._steps += now
        if now < left.steps:
            self._unreleased = replace(left, steps=left.steps - now)
            return []
        self._unreleased = None
        return left.episodes


def _as_json(left: _Unreleased) -> dict[str, Any]:
    episodes = [[one.behaviour, one.agent, one.total, one.length] for one in left.episodes]
    return {"steps": left.steps, "stride": left.stride, "episodes": episodes}


def _of_json(left: Mapping[str, Any]) -> _Unreleased:
    episodes = [Episode(str(b), int(agent), float(total), int(n)) for b, agent, total, n in left["episodes"]]
    return _Unreleased(int(left["steps"]), int(left["stride"]), episodes)
