"""Demonstrations of Unity's ML-Agents, read from ``.demo`` files. Everything in them is checked.

Pair t of a file holds observation t, the reward of step t − 1, the masks of step t (true forbids), its action
and whether the episode has ended at this observation. So an episode of L steps has L + 1 pairs. The action of
the last one was never taken: it is not read, and older recorders left it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from algorithm.core.data import Array, Bool
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.reading import open_plain
from algorithm.core.system.memory import free_memory
from algorithm.demos.episode import FaultyRecordingError, Notify, RecordedEpisode, Wanted
from algorithm.extras.mlagents.demo_file import MOST_STEPS, DemoRecords
from algorithm.extras.unity.package import DemoMessages, demo_messages, recorded_behaviour
from algorithm.extras.unity.spaces import rewards_of

_LARGEST = 2**40  # bytes of a file; its episodes are read one after the other
_MOST_OPEN = 10_000  # episodes at a time
_STEP = 64 * 2**20  # bytes of a step in memory
_SENSORS = 2**10
_AXES = 8
_ACTIONS = 2**16


def read_demo(path: Path, wanted: Wanted | None, notify: Notify) -> Iterator[RecordedEpisode]:
    """Yield the episodes of a file; see :data:`algorithm.demos.episode.Reader`.

    Observations are as a Unity environment gives them. Raises UsageError without the package
    ``mlagents-envs``.
    """
    try:
        messages = demo_messages()
    except EnvError as error:
        raise UsageError(
            ".demo files need the package mlagents-envs", why=error.why, fix=error.fix
        ) from error
    try:
        file = open_plain(path, _LARGEST, follow=True)
    except ValueError as error:
        raise FaultyRecordingError(f"it is not a recording: {error}") from error
    with file:
        records = DemoRecords(file)
        meta = records.meta(messages.meta)
        brain = records.brain(messages.brain)
        if wanted is not None:
            wanted.names_in([brain.brain_name], notify)
        pairs = _limited_pairs(records, messages, meta.number_steps, notify)
        yield from _Episodes(brain, free_memory() // 2).of(pairs, notify)


def _limited_pairs(
    records: DemoRecords, messages: DemoMessages, number: int, notify: Notify
) -> Iterator[Any]:
    """Yield as many pairs as the meta data state, all if they state 0; warn if some are missing."""
    count = 0
    for pair in records.pairs(messages.pair):
        count += 1
        if count > MOST_STEPS:
            raise FaultyRecordingError(f"it has more than {MOST_STEPS:,} steps")
        yield pair
        if count == number:  # behind them is no pair, but a copy of the meta data
            return
    if records.cut:
        notify("its last record is cut off, and left out")
    if number == 0 and count:
        notify("it was not closed by its recorder; it is read to its end")
    elif count < number:
        notify(f"its meta data state {number:,} records, and it has {count:,}")


class _Episodes:
    """Assembler of a behaviour's episodes from messages about its agents, whose episodes may interleave.

    brain: parameters of the behaviour
    limit: bytes that episodes without an end yet may take
    """

    def __init__(self, brain: Any, limit: int) -> None:  # noqa: ANN401 - a protobuf message
        self._brain = brain
        self._limit = limit
        self._open: dict[int, dict[str, bytearray]] = {}  # id → bytes of each array so far
        self._last: dict[int, Any] = {}  # id → pair whose action is not read yet
        self._number = 0
        self._short = self._forbidden = 0
        self._open_bytes = 0

    def of(self, pairs: Iterator[Any], notify: Notify) -> Iterator[RecordedEpisode]:
        """Yield each episode when it ends, then those without an end. Raises FaultyRecordingError."""
        decoder = None
        for pair in pairs:
            decoder = decoder or StepDecoder(self._brain, pair.agent_info)
            self._append(pair, decoder)
            if pair.agent_info.done:
                terminated = not pair.agent_info.max_step_reached
                yield from self._finished(pair.agent_info.id, decoder, terminated=terminated)
        if decoder is None:
            raise FaultyRecordingError("it holds no step")
        before = self._number
        for agent in [*self._open]:
            yield from self._finished(agent, decoder, terminated=False)
        if self._number > before:
            notify(f"episodes without an end, treated as cut off: {self._number - before}")
        if self._short:
            notify(f"episodes without a step, left out: {self._short}")
        if self._forbidden:
            notify(
                "choices that their masks forbid (made at an earlier decision), now allowed: "
                f"{self._forbidden}"
            )

    def _append(self, pair: Any, decoder: StepDecoder) -> None:  # noqa: ANN401 - a protobuf message
        """Append a pair to the open episode of its agent. Raises FaultyRecordingError."""
        agent = pair.agent_info.id
        if agent not in self._open:
            if len(self._open) == _MOST_OPEN:
                raise FaultyRecordingError(f"more than {_MOST_OPEN:,} of its episodes have no end")
            self._open[agent] = {name: bytearray() for name in decoder.layout}
        columns = self._open[agent]
        step = _length(columns)
        fields = [(name, pair, step) for name in decoder.layout if name != "action"]
        if step:
            fields.insert(0, ("action", self._last[agent], step - 1))
        self._last[agent] = pair
        for name, source, at in fields:
            try:
                data = decoder.fields[name](source).tobytes()
            except ValueError as error:
                where = f"episode {self._number}, step {at}, {name}"
                raise FaultyRecordingError(str(error), where) from error
            columns[name].extend(data)
            self._open_bytes += len(data)
        if self._open_bytes > self._limit:
            raise FaultyRecordingError(
                f"it needs {self._open_bytes:,} bytes, more than half of the free memory",
                f"episode {self._number}",
            )

    def _finished(self, agent: int, decoder: StepDecoder, *, terminated: bool) -> Iterator[RecordedEpisode]:
        """Yield the finished episode of an agent, unless it has no step."""
        columns = self._open.pop(agent)
        del self._last[agent]
        length = _length(columns)
        self._open_bytes -= sum(map(len, columns.values()))
        if length < 2:
            self._short += 1
            return
        arrays: dict[str, Array] = {
            name: np.ndarray((length - (name == "action"), *shape), dtype, buffer=columns[name])
            for name, (dtype, shape) in decoder.layout.items()
        }
        last = np.arange(1, length) == length - 1
        mask: Bool = arrays["action_mask"].view(np.bool_)
        chosen = arrays["action"][:, : mask.shape[1]].astype(np.bool_)
        self._forbidden += int(np.count_nonzero(chosen & ~mask[:-1]))
        mask[:-1] |= chosen
        yield RecordedEpisode(
            number=self._number,
            behaviour=self._brain.brain_name,
            agent=agent,
            obs={name[4:]: value for name, value in arrays.items() if name.startswith("obs/")},
            action_mask=mask,
            action=arrays["action"],
            reward=arrays["reward"][1:],
            terminated=last & terminated,
            truncated=last & (not terminated),
        )
        self._number += 1


def _length(columns: dict[str, bytearray]) -> int:
    """Return the number of pairs that the columns hold."""
    return len(columns["reward"]) // 4


class StepDecoder:
    """Decoder of the messages of one behaviour, to the arrays that a Unity environment would give.

    brain:  parameters of the behaviour
    first:  the first message about an agent
    layout: name of a field -> dtype and shape
    fields: name of a field -> function that returns its array for a pair, or raises ValueError
    Raises FaultyRecordingError for a behaviour without observations or actions, or one that is too large.
    """

    def __init__(self, brain: Any, first: Any) -> None:  # noqa: ANN401 - protobuf messages
        _check_sizes(brain, first)
        try:
            behaviour = recorded_behaviour(brain, first)
        except EnvError as error:
            raise FaultyRecordingError(f"{error.what}: {error.why}") from error
        except (ValueError, IndexError) as error:
            raise FaultyRecordingError(f"its behaviour is invalid: {error}") from error
        self._sensors = behaviour.sensors
        self._action = behaviour.spec.action
        self.layout: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            **{
                f"obs/{sensor.name}": (np.dtype(sensor.dtype), sensor.kept_shape)
                for sensor in behaviour.seen.values()
            },
            "action_mask": (np.dtype(np.bool_), (self._action.discrete,)),
            "reward": (np.dtype(np.float32), ()),
            "action": (np.dtype(np.float32), (self._action.size,)),
        }
        self.fields: dict[str, Callable[[Any], Array]] = {
            **{f"obs/{sensor.name}": partial(self._read_obs, k) for k, sensor in behaviour.seen.items()},
            "action_mask": self._read_mask,
            "reward": lambda pair: _finite(rewards_of([pair.agent_info])),
            "action": self._read_action,
        }
        size = sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.layout.values())
        if size > _STEP:
            raise FaultyRecordingError(f"a step has {size:,} bytes; at most {_STEP:,} can be read")

    def _read_obs(self, k: int, pair: Any) -> Array:  # noqa: ANN401 - a protobuf message
        """Return the k-th observation [1, ...] of a pair. Raises ValueError."""
        seen, sensor = pair.agent_info.observations, self._sensors[k]
        if len(seen) != len(self._sensors):
            raise ValueError(f"observations: expected {len(self._sensors)}, got {len(seen)}")
        shape, numbers = list(sensor.shape), len(seen[k].float_data.data)
        if seen[k].shape != shape:
            raise ValueError(f"expected the shape {shape}, got {seen[k].shape[:_AXES]}")
        if not sensor.png and numbers != math.prod(shape):
            raise ValueError(f"expected {math.prod(shape):,} numbers, got {numbers:,}")
        return _finite(sensor.read([seen[k]]))

    def _read_mask(self, pair: Any) -> Bool:  # noqa: ANN401 - a protobuf message
        """Return the mask [1, ΣN], true for allowed choices; in the file, true forbids. Raises ValueError."""
        forbidden = pair.agent_info.action_mask
        if len(forbidden) not in (0, self._action.discrete):
            raise ValueError(f"expected a mask of {self._action.discrete} choices, got {len(forbidden):,}")
        return ~np.array([forbidden[:]], np.bool_) if forbidden else self._action.all_allowed(1)

    def _read_action(self, pair: Any) -> Array:  # noqa: ANN401 - a protobuf message
        """Return the flat action [A]. Older recorders have one list for either kind. Raises ValueError."""
        spec, flat = self._action, np.zeros(self._action.size, np.float32)
        lists = [pair.action_info.continuous_actions, pair.action_info.discrete_actions]
        if not lists[0] and not lists[1] and not (spec.continuous and spec.branches):
            lists[0 if spec.continuous else 1] = pair.action_info.vector_actions_deprecated
        numbers, chosen = lists
        if (len(numbers), len(chosen)) != (spec.continuous, len(spec.branches)):
            raise ValueError(
                f"expected {spec.continuous} continuous and {len(spec.branches)} discrete actions, "
                f"got {len(numbers):,} and {len(chosen):,}"
            )
        flat[spec.discrete :] = numbers
        for branch, (where, choices) in enumerate(zip(spec.branch_slices, spec.branches, strict=True)):
            picked = float(chosen[branch])
            if not (0 <= picked < choices and picked.is_integer()):
                raise ValueError(f"expected a choice below {choices} in branch {branch}, got {picked:g}")
            flat[where.start + int(picked)] = 1.0
        return _finite(flat)


def _finite(values: Array) -> Array:
    """Return the values unchanged. Raises ValueError unless all are finite."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("it holds numbers that are not finite")
    return values


def _check_sizes(brain: Any, first: Any) -> None:  # noqa: ANN401 - protobuf messages
    """Raise FaultyRecordingError for a behaviour that is too large to allocate anything for."""
    spec = brain.action_spec
    old_sizes = brain.vector_action_size_deprecated
    sizes = [spec.num_continuous_actions, *spec.discrete_branch_sizes, *old_sizes]
    branches = (
        spec.discrete_branch_sizes if spec.num_continuous_actions or spec.num_discrete_actions else old_sizes
    )
    if 0 in branches:
        raise FaultyRecordingError("its behaviour has 0 actions in a branch")
    if min(sizes) < 0 or sum(sizes) > _ACTIONS:
        raise FaultyRecordingError(
            f"its behaviour has {sum(sizes):,} actions; at most {_ACTIONS:,} can be read"
        )
    if len(first.observations) > _SENSORS:
        raise FaultyRecordingError(
            f"it has {len(first.observations):,} observations; at most {_SENSORS:,} can be read"
        )
    for number, obs in enumerate(first.observations):
        right = len(obs.shape) == 3 if obs.compression_type else len(obs.shape) <= _AXES
        if not right or not all(0 <= size <= _STEP for size in obs.shape):
            kind = "a PNG" if obs.compression_type else "numbers"
            raise FaultyRecordingError(f"observation {number} is {kind} of the shape {obs.shape[:_AXES]}")
