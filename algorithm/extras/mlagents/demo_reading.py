"""Demonstrations of Unity's ML-Agents, read from ``.demo`` files. Everything in them is checked.

Pair t of a file holds observation t, the reward of step t − 1, the masks of step t (true forbids), its action
and whether the episode has ended at this observation. So an episode of L steps has L + 1 pairs. The action of
the last one was never taken: it is not read, and older recorders left it out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from algorithm.core.data import Array, Float
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.reading import open_plain
from algorithm.demos.episode import FaultyRecordingError, Notify, RecordedEpisode, Wanted
from algorithm.extras.mlagents.demo_file import MOST_STEPS, DemoRecords
from algorithm.extras.unity.package import DemoMessages, demo_messages, recorded_behaviour
from algorithm.extras.unity.spaces import AgentStates

_LARGEST = 2**40  # bytes of a file; its episodes are read one after the other
_STEP = 64 * 2**20  # bytes of the numbers of a step
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
        yield from _Episodes(brain).of(pairs, notify)


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


class _Step(NamedTuple):
    """A message about an agent: its state, and its action, which is not read yet."""

    state: AgentStates
    action: Any  # a protobuf message


class _Episodes:
    """Assembler of a behaviour's episodes from messages about its agents, whose episodes may interleave.

    brain: parameters of the behaviour
    """

    def __init__(self, brain: Any) -> None:  # noqa: ANN401 - a protobuf message
        self._brain = brain
        self._open: dict[int, list[_Step]] = {}  # by the agent's id
        self._number = 0
        self._short = self._forbidden = 0

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
        steps = self._open.setdefault(pair.agent_info.id, [])
        try:
            step = _Step(decoder.state(pair.agent_info), pair.action_info)
        except ValueError as error:
            raise FaultyRecordingError(str(error), self._where(len(steps))) from error
        steps.append(step)

    def _finished(self, agent: int, decoder: StepDecoder, *, terminated: bool) -> Iterator[RecordedEpisode]:
        """Yield the finished episode of an agent, unless it has no step."""
        steps = self._open.pop(agent)
        if len(steps) < 2:
            self._short += 1
            return
        states, length = [step.state for step in steps], len(steps) - 1
        action = np.stack([self._action(decoder, step, at) for at, step in enumerate(steps[:-1])])
        mask = np.concatenate([state.action_mask for state in states])
        chosen = action[:, : mask.shape[1]].astype(np.bool_)
        self._forbidden += int(np.count_nonzero(chosen & ~mask[:-1]))
        mask[:-1] |= chosen
        last = np.arange(length) == length - 1
        yield RecordedEpisode(
            number=self._number,
            behaviour=self._brain.brain_name,
            agent=agent,
            obs={name: np.concatenate([state.obs[name] for state in states]) for name in states[0].obs},
            action_mask=mask,
            action=action,
            reward=np.concatenate([state.reward for state in states[1:]]),
            terminated=last & terminated,
            truncated=last & (not terminated),
        )
        self._number += 1

    def _action(self, decoder: StepDecoder, step: _Step, at: int) -> Float:
        """Return the flat action of a step. Raises FaultyRecordingError."""
        try:
            return decoder.action(step.action)
        except ValueError as error:
            raise FaultyRecordingError(str(error), self._where(at)) from error

    def _where(self, step: int) -> str:
        return f"episode {self._number}, step {step}"


class StepDecoder:
    """Decoder of the messages of one behaviour, to what a Unity environment gives.

    brain: parameters of the behaviour
    first: the first message about an agent
    Raises FaultyRecordingError for a behaviour without observations or actions, or one that is too large.
    """

    def __init__(self, brain: Any, first: Any) -> None:  # noqa: ANN401 - protobuf messages
        _check_sizes(brain, first)
        try:
            self._behaviour = recorded_behaviour(brain, first)
        except EnvError as error:
            raise FaultyRecordingError(f"{error.what}: {error.why}") from error
        except (ValueError, IndexError) as error:
            raise FaultyRecordingError(f"its behaviour is invalid: {error}") from error
        obs = self._behaviour.spec.obs
        size = sum(np.dtype(dtype).itemsize * math.prod(shape) for _, shape, dtype in obs.items())
        if size > _STEP:
            raise FaultyRecordingError(f"a step has {size:,} bytes; at most {_STEP:,} can be read")

    def state(self, info: Any) -> AgentStates:  # noqa: ANN401 - a protobuf message
        """Return the state of an agent in a message. Raises ValueError."""
        try:
            state = self._behaviour.states([info])
        except EnvError as error:
            raise ValueError(f"{error.what}: {error.why}") from error
        for name, value in state.obs.items():
            _finite(value, name)
        _finite(state.reward, "the reward")
        return state

    def action(self, message: Any) -> Float:  # noqa: ANN401 - a protobuf message
        """Return the flat action [A]. Raises ValueError."""
        spec = self._behaviour.spec.action
        flat = np.zeros(spec.size, np.float32)
        numbers, chosen = self._parts(message)
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
        _finite(flat, "the action")
        return flat

    def _parts(self, message: Any) -> tuple[Sequence[float], Sequence[float]]:  # noqa: ANN401 - as above
        """Return the continuous and the discrete action; older recorders have one list for either kind."""
        spec, older = self._behaviour.spec.action, message.vector_actions_deprecated
        if message.continuous_actions or message.discrete_actions or (spec.continuous and spec.branches):
            return message.continuous_actions, message.discrete_actions
        return (older, ()) if spec.continuous else ((), older)


def _finite(values: Array, name: str) -> None:
    """Raise ValueError unless all numbers are finite."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"{name} holds numbers that are not finite")


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
