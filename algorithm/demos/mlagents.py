"""Demonstrations of Unity's ML-Agents: ``.demo`` files, read and written.

Pair t of a file holds observation t, the reward of step t − 1, the masks of step t (true forbids), its action
and whether the episode has ended at this observation. So an episode of L steps has L + 1 pairs, and the
action of the last one is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from algorithm.core.data import Array
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.reading import open_plain
from algorithm.core.spec import AgentSpec
from algorithm.core.system.memory import free_memory
from algorithm.demos.demo_file import META_BYTES, MOST_STEPS, DemoRecords, write_record
from algorithm.demos.demo_steps import FaultyStepError, StepDecoder
from algorithm.demos.demo_writing import StepEncoder, brain_of, meta_of
from algorithm.demos.draft import Draft
from algorithm.demos.episode import (
    Behaviours,
    FaultyRecordingError,
    Float32Episode,
    Notify,
    RecordedEpisode,
    check_behaviours,
)
from algorithm.env.config import without_team
from algorithm.env.unity.package import DemoMessages, demo_messages

_LARGEST = 2**40  # bytes of a file; its episodes are read one after the other
_MOST_OPEN = 10_000  # episodes at a time


def read_demo(path: Path, wanted: Behaviours | None, notify: Notify) -> Iterator[RecordedEpisode]:
    """Yield the episodes of a file; see :data:`algorithm.demos.episode.Reader`.

    Observations are those that a Unity environment gives of the same sensors. Raises UsageError without the
    package ``mlagents-envs``.
    """
    messages = _messages()
    try:
        stream = open_plain(path, _LARGEST, follow=True)
    except ValueError as error:
        raise FaultyRecordingError(f"it is no recording: {error}") from error
    with stream:
        records = DemoRecords(stream)
        meta = records.meta(messages.meta)
        brain = records.brain(messages.brain)
        name = brain.brain_name
        if wanted is None or without_team(name) not in wanted:
            check_behaviours([name], wanted)
        pairs = _counted(records, messages, meta.number_steps, notify)
        yield from _Episodes(brain, free_memory() // 2).of(pairs, notify)


def _messages() -> DemoMessages:
    try:
        return demo_messages()
    except EnvError as error:
        raise UsageError(
            ".demo files need the package mlagents-envs", why=error.why, fix=error.fix
        ) from error


def _counted(records: DemoRecords, messages: DemoMessages, number: int, notify: Notify) -> Iterator[Any]:
    """Yield the pairs that the meta data count, all if they count none; say what is missing."""
    count = 0
    for pair in records.pairs(messages.pair):
        count += 1
        if count > MOST_STEPS:
            raise FaultyRecordingError(f"it has more than {MOST_STEPS:,} steps")
        yield pair
        if count == number:  # what comes then is no pair: ML-Agents writes its meta data there
            return
    if records.cut:
        notify("its last record is cut off, and left out")
    if number == 0 and count:
        notify("its recorder has not closed it; it is read to its end")
    elif count < number:
        notify(f"its meta data say {number:,} records, and it has {count:,}")


class _Open:
    """Episode in the making. columns: bytes of its arrays so far, by name."""

    def __init__(self, names: Iterable[str]) -> None:
        self.columns = {name: bytearray() for name in names}
        self.pairs: list[Any] = []  # not decoded yet
        self.length = 0


class _Episodes:
    """Episodes of a behaviour out of the messages about its agents; episodes of several ids may alternate.

    brain: its parameters; limit: bytes that open episodes may take
    """

    def __init__(self, brain: Any, limit: int) -> None:  # noqa: ANN401 - a protobuf message
        self._brain = brain
        self._limit = limit
        self._open: dict[int, _Open] = {}
        self._last: int | None = None  # id of the last message
        self._number = self._short = self._held = 0  # held: bytes of the open ones

    def of(self, pairs: Iterator[Any], notify: Notify) -> Iterator[RecordedEpisode]:
        """Yield each episode when it ends, and behind them those that have no end."""
        for pair in pairs:
            if self._last is None:
                self._decoder = StepDecoder(self._brain, pair.agent_info)
            agent = pair.agent_info.id
            done = pair.agent_info.done
            if agent != self._last and self._last in self._open:  # no more than a chunk of messages is held
                self._decode(self._open[self._last], ended=False)
            self._last = agent
            if agent not in self._open:
                self._begin(agent)
            episode = self._open[agent]
            episode.pairs.append(pair)
            if done or len(episode.pairs) == self._decoder.chunk:
                self._decode(episode, ended=done)
            if done:
                del self._open[agent]
                yield from self._finished(episode, agent, terminated=not pair.agent_info.max_step_reached)
        if self._last is None:
            raise FaultyRecordingError("it holds no step")
        yield from self._unfinished(notify)

    def _unfinished(self, notify: Notify) -> Iterator[RecordedEpisode]:
        before = self._number
        for agent, episode in self._open.items():
            self._decode(episode, ended=False)
            yield from self._finished(episode, agent, terminated=False)
        if self._number > before:
            notify(f"episodes without an end, taken as cut off there: {self._number - before}")
        if self._short:
            notify(f"episodes without a step, left out: {self._short}")

    def _begin(self, agent: int) -> None:
        if len(self._open) == _MOST_OPEN:
            raise FaultyRecordingError(f"more than {_MOST_OPEN:,} of its episodes have no end")
        self._open[agent] = _Open(self._decoder.layout)

    def _decode(self, episode: _Open, *, ended: bool) -> None:
        """Append what has come to an episode's columns."""
        pairs, episode.pairs = episode.pairs, []
        try:
            found = self._decoder.decode(pairs, acting=len(pairs) - ended)
        except FaultyStepError as error:
            where = f"episode {self._number}, step {episode.length + error.number}, {error.field}"
            raise FaultyRecordingError(error.why, where) from error
        for name, values in found.items():
            episode.columns[name].extend(values.tobytes())
            self._held += values.nbytes
        episode.length += len(pairs)
        if self._held > self._limit:
            raise FaultyRecordingError(
                f"it needs {self._held:,} bytes, more than half of the free memory", f"episode {self._number}"
            )

    def _finished(self, episode: _Open, agent: int, *, terminated: bool) -> Iterator[RecordedEpisode]:
        self._held -= sum(map(len, episode.columns.values()))
        if episode.length < 2:
            self._short += 1
            return
        arrays: dict[str, Array] = {
            name: np.ndarray((episode.length, *shape), dtype, buffer=episode.columns[name])
            for name, (dtype, shape) in self._decoder.layout.items()
        }
        last = np.arange(1, episode.length) == episode.length - 1
        yield Float32Episode(
            number=self._number,
            behaviour=self._brain.brain_name,
            agent=agent,
            obs={name[4:]: value for name, value in arrays.items() if name.startswith("obs/")},
            action_mask=arrays["action_mask"],
            action=arrays["action"][:-1],
            reward=arrays["reward"][1:],
            terminated=last & terminated,
            truncated=last & (not terminated),
        )
        self._number += 1


class DemoWriter:
    """Writer of such a file, of one behaviour's episodes; an :class:`~algorithm.demos.episode.EpisodeWriter`.

    It replaces a file of that name, and appears at the end, complete. What is known of whoever acted (carry,
    z, log-probabilities) has no place in it. Raises UsageError without the package ``mlagents-envs``.
    """

    def __init__(self, path: Path, spec: AgentSpec, behaviour: str) -> None:
        self.target = str(path)
        self._draft = Draft(path)
        self._messages = _messages()
        self._spec = spec
        self._behaviour = behaviour
        self._file: BinaryIO | None = None

    def begin(self) -> None:
        """Open the file, with meta data that a reader takes for those of a recorder that was killed."""
        self._encoder = StepEncoder(self._messages.pair, self._spec)
        self._steps = self._episodes = 0
        self._total = 0.0
        self._file = self._draft.open()
        write_record(self._file, meta_of(self._messages.meta, self._draft.path.stem))
        self._file.seek(META_BYTES + 1)
        write_record(self._file, brain_of(self._messages.brain, self._spec.action, self._behaviour))

    def write(self, episode: RecordedEpisode) -> None:
        """Append an episode. Raises UsageError for numbers that float32 does not hold to the last bit."""
        assert self._file is not None, "begin comes first"
        try:
            for pair in self._encoder.pairs(episode):
                write_record(self._file, pair)
        except FaultyRecordingError as error:
            self.discard()
            raise UsageError(
                "a .demo file cannot hold this episode",
                where=f"episode {episode.number}, {error.where}",
                why=error.why,
                fix="record to a .npz file",
            ) from error
        self._file.flush()
        self._steps += len(episode.reward) + 1
        self._episodes += 1
        self._total += float(np.sum(episode.reward, dtype=np.float64))

    def finish(self) -> None:
        """Write the meta data again, now with their numbers, and give the file its name.

        Nothing happens after an episode that was refused: there is no file any more.
        """
        if self._file is None:
            return
        self._file.seek(0)
        numbers = {
            "number_steps": self._steps,
            "number_episodes": self._episodes,
            "mean_reward": self._total / self._episodes,
        }
        write_record(self._file, meta_of(self._messages.meta, self._draft.path.stem, **numbers))
        self._draft.finish()

    def discard(self) -> None:
        """Remove what was written."""
        self._file = None
        self._draft.discard()
