"""Steps of an actor's agents, gathered into messages for the learner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from algorithm.core.data import Array, Bool, Int, StepBatch
from algorithm.core.open_streams import OpenStreams
from ds.net.protocol import Episodes, StepMessage

if TYPE_CHECKING:  # an actor's messages are gathered and sent without torch
    from algorithm.core.data import Episode

MAX_HELD = 1_000
"""Episodes with which a message goes out, also while another one is on its way."""

_HEADS = ("obs", "action_mask", "carry")
"""Columns of rows that follow none; see :class:`~algorithm.core.data.StepBatch`."""


class StepWriter:
    """Writer of all behaviours' steps: a message is due when an episode ends, or when it is long enough.

    most:       behaviour -> transitions that a message may hold
    max_length: transitions of a behaviour with which a message is due

    Every message can be read without those before it: it begins with the observation of each agent.
    ``version`` is that of the weights that act; it never falls. ``recorders`` are those of the behaviours.
    """

    def __init__(self, most: Mapping[str, int], *, max_length: int) -> None:
        self.version = 0
        self.recorders = {
            name: BehaviourRecorder(self, min(max_length, rows), rows) for name, rows in most.items()
        }
        self._oldest: int | None = None  # version of the first step in the message
        # An episode has ended in the message, which the next flush completes or holds back.
        self.is_due = False
        self._agents: Mapping[str, Int] = {}
        self._episodes: list[Episode] = []
        self._complete: list[StepMessage] = []

    def flush(
        self,
        *,
        agents: Mapping[str, Int],
        episodes: Sequence[Episode],
        whole: bool = False,
        hold: bool = False,
    ) -> list[StepMessage]:
        """Return messages, without actor and number, that are complete. Called after every step.

        agents:   behaviour -> all that are there after the last step, waiting or not
        episodes: that ended with the last step
        whole:    complete the message, whatever it holds
        hold:     another message is on its way: let this one grow with further episodes until it is long
        """
        self._agents = agents
        self._episodes += episodes
        hold = hold and len(self._episodes) < MAX_HELD
        is_long = any(recorder.is_long for recorder in self.recorders.values())
        if whole or is_long or ((self.is_due or self._episodes) and not hold):
            self._end_message(agents)
        complete, self._complete = self._complete, []
        return complete

    def finish(self) -> list[StepMessage]:
        """Return the last messages; open episodes end as truncated."""
        for recorder in self.recorders.values():
            recorder.close_all()
        return self.flush(agents={}, episodes=())

    def begin(self) -> None:
        """Note that a step is written."""
        if self._oldest is None:
            self._oldest = self.version

    def make_room(self) -> None:
        """Complete the message before a step that has no room; agents that act for the first time count."""
        acting = {name: recorder.acting for name, recorder in self.recorders.items()}
        known = {name: self._agents.get(name, ids[:0]) for name, ids in acting.items()}
        self._end_message({name: np.union1d(known[name], ids) for name, ids in acting.items()})

    def _end_message(self, agents: Mapping[str, Int]) -> None:
        steps = {name: recorder.take() for name, recorder in self.recorders.items() if recorder.rows}
        closed = {
            name: recorder.take_closed() for name, recorder in self.recorders.items() if recorder.closed
        }
        message = StepMessage(
            actor="",
            number=0,
            dropped=0,
            version=self.version if self._oldest is None else self._oldest,
            closed=closed,
            steps=steps,
            episodes=_by_behaviour(self._episodes),
            agents=dict(agents),
        )
        self._complete.append(message)
        self._oldest = None
        self._episodes = []
        self.is_due = False


def _by_behaviour(episodes: Iterable[Episode]) -> dict[str, Episodes]:
    ended: dict[str, list[Episode]] = {}
    for episode in episodes:
        ended.setdefault(episode.behaviour, []).append(episode)
    return {
        name: Episodes(
            agents=np.array([episode.agent for episode in group], np.int64),
            returns=np.array([episode.total for episode in group], np.float64),
            lengths=np.array([episode.length for episode in group], np.int64),
        )
        for name, group in ended.items()
    }


class BehaviourRecorder:
    """Recorder of one behaviour: columns of a message that grow step by step.

    due:  rows with which the message is due
    most: rows that it may hold
    """

    def __init__(self, writer: StepWriter, due: int, most: int) -> None:
        self._writer, self._due, self._most = writer, due, most
        self._open = OpenStreams(np.int64)  # next step, and number of the last row over all messages
        self._before = 0  # rows of all messages before this one
        self._columns: dict[str, Array] = {}
        self._num_heads = 0  # rows that follow none
        self.rows = 0
        self.closed: list[int] = []  # agents whose episode ends where an earlier message ended

    @property
    def acting(self) -> Int:
        """Agents of the rows [n], in the order of the rows."""
        return self._columns["streams"][: self.rows].astype(np.int64) if self.rows else np.zeros(0, np.int64)

    @property
    def is_long(self) -> bool:
        """Whether the message is due, also where others are held back."""
        return self.rows >= self._due

    def add_steps(self, steps: StepBatch) -> None:
        """Write a step of several agents; environments may write into its arrays afterwards.

        A row that does not follow its agent's last one ends what was open as truncated, as in the replay.
        """
        n = len(steps)
        if n > self._most:
            for first in range(0, n, self._most):
                self.add_steps(steps.rows(np.arange(first, min(n, first + self._most))))
            return
        if self.rows + n > self._most:
            self._writer.make_room()
        self._writer.begin()
        known, at, last = self._open.of(steps.streams)
        follows = known & (at == steps.start_steps)
        for stream in steps.streams[known & ~follows].tolist():
            self.close(stream)
        self._write(steps, ~(follows & (last >= self._before)))
        rows = self._before + np.arange(self.rows, self.rows + n)
        self._open.renew(steps.streams, steps.start_steps + 1, rows, steps.ended)
        self.rows += n
        if steps.ended.any():
            self._writer.is_due = True

    def close(self, stream: int) -> None:
        """End the agent's open episode as truncated; does nothing if there is none."""
        last = self._open.close(stream)
        if last is None:
            return
        row = int(last.number) - self._before
        if row >= 0:
            self._columns["truncated"][row] = True
        else:
            self.closed.append(stream)
        self._writer.is_due = True

    def close_all(self) -> None:
        """End all open episodes as truncated."""
        for stream, _ in list(self._open):
            self.close(stream)

    def take(self) -> StepBatch:
        """Return the rows so far, at least one, and begin anew."""
        rows = {
            name: column[: self._num_heads if _is_of_heads(name) else self.rows]
            for name, column in self._columns.items()
        }
        self._before += self.rows
        self._columns, self._num_heads, self.rows = {}, 0, 0
        return StepBatch.of_columns(rows)

    def take_closed(self) -> Int:
        """Return the agents whose episode ends before these rows, and begin anew."""
        closed, self.closed = np.array(self.closed, np.int64), []
        return closed

    def _write(self, steps: StepBatch, heads: Bool) -> None:
        """Write rows; ``heads`` [n]: those that follow none in this message."""
        columns, rows, first_head = steps.columns(), slice(self.rows, self.rows + len(heads)), self._num_heads
        if not self._columns:  # memory that is touched only where it is written
            self._columns = {
                name: np.empty((self._most, *value.shape[1:]), value.dtype) for name, value in columns.items()
            }
        self._num_heads += int(np.count_nonzero(heads))
        for name, value in columns.items():
            if _is_of_heads(name):
                self._columns[name][first_head : self._num_heads] = value[heads]
            else:
                self._columns[name][rows] = value


def _is_of_heads(name: str) -> bool:
    return name.partition("/")[0] in _HEADS
