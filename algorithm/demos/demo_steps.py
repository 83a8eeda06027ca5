"""Messages of ML-Agents' recorder as arrays. Nothing in them is believed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from algorithm.core.data import Array, Bool, Float
from algorithm.core.errors import EnvError
from algorithm.demos.episode import FaultyRecordingError
from algorithm.env.unity.package import recorded_behaviour
from algorithm.env.unity.spaces import rewards_of

_CHUNK = 256  # steps that are decoded at once
_CHUNK_BYTES = 4 * 2**20  # of them, in memory
_STEP = 64 * 2**20  # bytes of a step in memory
_SENSORS = 2**10
_AXES = 8
_ACTIONS = 2**16


class StepDecoder:
    """Decoder of the messages of one behaviour, to what a Unity environment gives of the same.

    brain: its parameters; first: the first message about an agent
    chunk: number of messages to decode at once
    Raises FaultyRecordingError if there is nothing to observe or to do, or if it is too large.
    """

    def __init__(self, brain: Any, first: Any) -> None:  # noqa: ANN401 - protobuf messages
        _check_sizes(brain, first)
        try:
            behaviour = recorded_behaviour(brain, first)
        except EnvError as error:
            raise FaultyRecordingError(f"{error.what}: {error.why}") from error
        except (ValueError, IndexError) as error:
            raise FaultyRecordingError(f"its behaviour makes no sense: {error}") from error
        self._sensors = behaviour.sensors
        self._action = behaviour.spec.action
        self.layout: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            **{f"obs/{one.name}": (np.dtype(one.dtype), one.kept_shape) for one in self._sensors},
            "action_mask": (np.dtype(np.bool_), (self._action.discrete,)),
            "action": (np.dtype(np.float32), (self._action.size,)),
            "reward": (np.dtype(np.float32), ()),
        }
        size = sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.layout.values())
        if size > _STEP:
            raise FaultyRecordingError(f"a step has {size:,} bytes; at most {_STEP:,} are read")
        self.chunk = max(1, min(_CHUNK, _CHUNK_BYTES // size))

    def decode(self, pairs: Sequence[Any], *, acting: int) -> dict[str, Array]:
        """Return the arrays of N messages, [N, ...] each; the first ``acting`` of them have an action.

        Raises FaultyStepError.
        """
        infos = [pair.agent_info for pair in pairs]
        found = {
            f"obs/{sensor.name}": _located(f"obs/{sensor.name}", infos, partial(self._seen, k))
            for k, sensor in enumerate(self._sensors)
        }
        found["action_mask"] = _located("action_mask", infos, self._allowed)
        found["reward"] = _located("reward", infos, _rewards)
        actions = [pair.action_info for pair in pairs[:acting]]
        found["action"] = np.zeros((len(pairs), self._action.size), np.float32)
        found["action"][:acting] = _located("action", actions, self._actions)
        return found

    def _seen(self, k: int, infos: Sequence[Any]) -> Array:
        """Return the k-th observation [N, ...]."""
        sensor = self._sensors[k]
        several = len(self._sensors)
        expected = list(sensor.shape)
        size = math.prod(sensor.shape)
        seen = []
        for info in infos:
            if len(info.observations) != several:
                raise ValueError(f"observations: expected {several}, got {len(info.observations)}")
            one = info.observations[k]
            if one.shape != expected:
                raise ValueError(f"expected the shape {expected}, got {one.shape[:_AXES]}")
            if not sensor.png and len(one.float_data.data) != size:
                raise ValueError(f"expected {size:,} numbers, got {len(one.float_data.data):,}")
            seen.append(one)
        values = sensor.read(seen)
        _check_finite(values)
        return values

    def _allowed(self, infos: Sequence[Any]) -> Bool:
        """Return the masks [N, ΣN]: those of the file say what is forbidden."""
        allowed = self._action.all_allowed(len(infos))
        for row, info in enumerate(infos):
            given = len(info.action_mask)
            if given not in (0, self._action.discrete):
                raise ValueError(f"expected a mask of {self._action.discrete} choices, got {given:,}")
            if given:
                allowed[row] = ~np.array(info.action_mask[:], np.bool_)
        return allowed

    def _actions(self, actions: Sequence[Any]) -> Float:
        """Return flat actions [N, A]. Older recorders have one list of numbers for either kind."""
        spec = self._action
        numbers = []
        chosen = []
        for one in actions:
            own = [one.continuous_actions, one.discrete_actions]
            if not len(own[0]) and not len(own[1]) and not (spec.continuous and spec.branches):
                own[0 if spec.continuous else 1] = one.vector_actions_deprecated
            expected = [spec.continuous, len(spec.branches)]
            got = [len(part) for part in own]
            if got != expected:
                raise ValueError(
                    f"expected {expected[0]} continuous and {expected[1]} discrete actions, "
                    f"got {got[0]:,} and {got[1]:,}"
                )
            numbers.append(own[0][:])
            chosen.append(own[1][:])
        flat = np.zeros((len(actions), spec.size), np.float32)
        flat[:, spec.discrete :] = np.array(numbers, np.float32).reshape(len(actions), spec.continuous)
        _check_finite(flat)
        for branch, (where, choices) in enumerate(zip(spec.branch_slices, spec.branches, strict=True)):
            picked = np.array([row[branch] for row in chosen], np.float64)
            wrong = ~((picked >= 0) & (picked < choices) & (picked % 1 == 0))
            if wrong.any():
                raise ValueError(
                    f"expected a choice below {choices} in branch {branch}, got {picked[wrong][0]:g}"
                )
            flat[np.arange(len(actions)), where.start + picked.astype(np.int64)] = 1.0
        return flat


def _rewards(infos: Sequence[Any]) -> Float:
    rewards = rewards_of(infos)
    _check_finite(rewards)
    return rewards


def _check_finite(values: Array) -> None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("it holds numbers that are not finite")


class FaultyStepError(Exception):
    """A message that cannot be used. number: among those that were decoded; field: of the episode."""

    def __init__(self, why: str, number: int, field: str) -> None:
        super().__init__(why)
        self.why = why
        self.number = number
        self.field = field


def _located(field: str, messages: Sequence[Any], decode: Callable[[Sequence[Any]], Any]) -> Array:
    """Return all messages decoded at once; if that fails, say which of them cannot be."""
    try:
        found: Array = decode(messages)
    except ValueError:
        for number, message in enumerate(messages):
            try:
                decode([message])
            except ValueError as error:
                raise FaultyStepError(str(error), number, field) from error
        raise
    return found


def _check_sizes(brain: Any, first: Any) -> None:  # noqa: ANN401 - protobuf messages
    """Raise FaultyRecordingError for a behaviour that is too large to allocate anything for."""
    own = brain.action_spec
    old = brain.vector_action_size_deprecated
    sizes = [own.num_continuous_actions, *own.discrete_branch_sizes, *old]
    branches = own.discrete_branch_sizes if own.num_continuous_actions or own.num_discrete_actions else old
    if 0 in branches:
        raise FaultyRecordingError("its behaviour has 0 actions in a branch")
    if min(sizes) < 0 or sum(sizes) > _ACTIONS:
        raise FaultyRecordingError(f"its behaviour has {sum(sizes):,} actions; at most {_ACTIONS:,} are read")
    if len(first.observations) > _SENSORS:
        raise FaultyRecordingError(
            f"it has {len(first.observations):,} observations; at most {_SENSORS:,} are read"
        )
    for number, one in enumerate(first.observations):
        right = len(one.shape) == 3 if one.compression_type else len(one.shape) <= _AXES
        if not right or not all(0 < size <= _STEP for size in one.shape):
            kind = "a PNG" if one.compression_type else "numbers"
            raise FaultyRecordingError(f"observation {number} is {kind} of the shape {one.shape[:_AXES]}")
