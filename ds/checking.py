"""Limits on messages, and checks of one before it is stored; a message that passes cannot fail later.

The replay checks shapes again when it stores. Here every number is checked, in the thread that receives, so
that neither a broken actor nor a forged message reaches the learner's loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from algorithm.core.data import Array
from algorithm.core.spec import Z_LIMIT, ActionSpec, AgentSpec, ObsSpec
from algorithm.env.outputs import held
from algorithm.replay.writer import MAX_STEP, SQUASH_TOLERANCE
from ds.net.protocol import BadMessage, Beat, Hello, TrajectoryMessage, Transitions

MAX_AGENT = 2**31 - 1
MAX_COUNT = 2**31 - 1
"""Maximum of each count within a message; counts over a run may be larger."""

MAX_ENVIRONMENTS = 2**16
"""Maximum number of environments of one actor."""

MAX_NAME = 64  # characters
MAX_PID = 2**32

MAX_TOTAL = 2**53
"""Maximum of counts over a run: integers up to here are exact in JSON and float64, too."""

AHEAD = 2**40
"""Largest accepted jump of an actor's counts: an earlier learner may have been further than its checkpoint.

A thousand a second need 34 years for it, and a billion of such jumps reach no limit of the numbers.
"""

_MAX_REWARD = float(np.finfo(np.float32).max)

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Requirements for an actor.

    agreed:       see :func:`ds.compatibility.agreed`
    specs, carry_shapes: by behaviour; of one stored carry, (0,) where none is stored
    max_length:   L of the longest segment, ``base_config.max_episode_length``
    max_message:  bytes of the largest message
    synchronous:  a message is answered only when it has been learned from
    room_timeout: seconds that a message waits for room before its actor is asked to send it again
    """

    agreed: Mapping[str, Any]
    specs: Mapping[str, AgentSpec]
    carry_shapes: Mapping[str, Shape]
    max_length: int
    max_message: int
    synchronous: bool
    room_timeout: float


def check_hello(hello: Hello) -> None:
    """Raise BadMessage for who has no name, or an endless one: names are remembered, and saved."""
    _within("length of the actor's name", len(hello.actor), 1, MAX_NAME)
    _within("pid", hello.pid, 0, MAX_PID)


def check_beat(beat: Beat, *, version: int) -> None:
    """Raise BadMessage for counts outside their bounds; ``version``: the highest that there may be."""
    _within("version", beat.version, 0, version)
    _within("steps", beat.steps, 0, MAX_TOTAL)
    _within("waiting", beat.waiting, 0, MAX_COUNT)
    for count in beat.faults:
        _within("faults", count, 0, MAX_COUNT)


def check_trajectory(message: TrajectoryMessage, terms: Terms, *, version: int = MAX_TOTAL) -> None:
    """Raise BadMessage unless agents of these specs could have made every number in the message.

    version: the highest that there may be
    """
    specs = terms.specs
    _within("number", message.number, 1, MAX_TOTAL)
    _within("channel", message.channel, 0, MAX_COUNT)
    _within("version", message.version, 0, version)
    _within("dropped", message.dropped, 0, MAX_TOTAL)
    for i, chunk in enumerate(message.chunks):
        where = f"chunk {i}"
        _check_agent(where, chunk.behaviour, chunk.agent, specs)
        if chunk.transitions is not None:
            where = f"{where} (behaviour {chunk.behaviour!r}, agent {chunk.agent})"
            _check_transitions(where, chunk.behaviour, chunk.transitions, terms)
    for i, (behaviour, agent) in enumerate(message.gone):
        _check_agent(f"gone {i}", behaviour, agent, specs)
    for i, (behaviour, agent, total, length) in enumerate(message.episodes):
        where = f"episode {i}"
        _check_agent(where, behaviour, agent, specs)
        _within(f"{where}: length", length, 1, MAX_COUNT)
        if not abs(total) <= length * _MAX_REWARD:  # nor is NaN
            raise BadMessage(f"{where}: the return is {total}, not a sum of {length} rewards")


def _within(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadMessage(f"{what} is {value} and must be in {low} … {high}")


def _check_agent(where: str, behaviour: str, agent: int, specs: Mapping[str, AgentSpec]) -> None:
    if behaviour not in specs:
        known = ", ".join(map(repr, specs))
        raise BadMessage(f"{where}: there is no behaviour {behaviour[:100]!r}; known: {known}")
    _within(f"{where}: agent", agent, 0, MAX_AGENT)


def _check_transitions(where: str, behaviour: str, segment: Transitions, terms: Terms) -> None:
    spec, carry = terms.specs[behaviour], terms.carry_shapes[behaviour]
    if segment.reward.ndim != 1:
        raise BadMessage(f"{where}, reward: shape {segment.reward.shape} is not that of a series")
    length = segment.length
    _within(f"{where}: number of transitions (base_config.max_episode_length)", length, 1, terms.max_length)
    _within(f"{where}: start_step", segment.start_step, 0, MAX_STEP - length - 1)
    if segment.obs.keys() != set(spec.obs.names):
        raise BadMessage(f"{where}: its observations are {sorted(segment.obs)}, not {sorted(spec.obs.names)}")
    for name, tail, dtype in spec.obs.items():
        _check_column(f"{where}, obs {name!r}", segment.obs[name], (length + 1, *tail), dtype)
    for name, (shape, dtype) in _columns(spec.action, carry, length).items():
        _check_column(f"{where}, {name}", getattr(segment, name), shape, dtype)
    _check_choices(where, segment, spec.obs)
    if spec.action.branches:
        _check_discrete(where, segment, spec)
    if spec.action.continuous:
        _check_continuous(where, segment, spec)
    for name in ("terminated", "truncated"):
        ends = getattr(segment, name)
        _refuse(f"{where}, {name}", ends[:-1], ends[:-1], "only the last step may end an episode")


def _columns(action: ActionSpec, carry: Shape, length: int) -> Mapping[str, tuple[Shape, str]]:
    """Return name → (shape, dtype) of all columns but observations; ``carry``: shape of one."""
    return {
        "action_mask": ((length + 1, action.discrete), "bool"),
        "carry": ((length + 1, *carry), "float32"),
        "action": ((length, action.size), "float32"),
        "z": ((length, action.continuous), "float32"),
        "behaviour_logp": ((length, action.record_size), "float32"),
        "reward": ((length,), "float32"),
        "terminated": ((length,), "bool"),
        "truncated": ((length,), "bool"),
    }


def _check_column(where: str, value: Array, shape: tuple[int, ...], dtype: str) -> None:
    if value.shape != shape:
        raise BadMessage(f"{where}: expected shape {shape}, got {value.shape}")
    if value.dtype != dtype:
        raise BadMessage(f"{where}: expected {dtype}, got {value.dtype}")
    if value.dtype.kind == "f" and not held(value).all():
        _refuse(where, value, ~held(value), "it must be finite")


def _check_choices(where: str, segment: Transitions, obs: ObsSpec) -> None:
    """Check that choices are in range; an encoder would index a one-hot outside its width."""
    for name, shape, counts in zip(obs.names, obs.shapes, obs.categories, strict=True):
        if counts:
            value = segment.obs[name]
            limit = np.array(counts).reshape(shape)
            outside = np.less(value, 0) | np.greater_equal(value, limit)
            _refuse(f"{where}, obs {name!r}", value, outside, "there is no such choice")


def _check_discrete(where: str, segment: Transitions, spec: AgentSpec) -> None:
    onehot, mask = segment.action[:, : spec.action.discrete], segment.action_mask
    _refuse(f"{where}, action", onehot, (onehot != 0.0) & (onehot != 1.0), "a one-hot has only 0 and 1")
    _refuse(f"{where}, action", onehot, (onehot == 1.0) & ~mask[:-1], "action_mask does not allow that")
    for i, branch in enumerate(spec.action.branch_slices):
        chosen = onehot[:, branch].sum(1)
        _refuse(f"{where}, action, branch {i}", chosen, chosen != 1.0, "exactly one choice must be made")
        allowed = mask[:, branch].sum(1)
        _refuse(f"{where}, action_mask, branch {i}", allowed, allowed == 0, "a choice must be allowed")


def _check_continuous(where: str, segment: Transitions, spec: AgentSpec) -> None:
    u = segment.action[:, spec.action.discrete :]
    action = spec.action
    if action.squash == "tanh":
        _refuse(f"{where}, z", segment.z, np.abs(segment.z) > Z_LIMIT, f"its limit is ±{Z_LIMIT}")
    far = np.abs(action.squashed(segment.z) - u) > SQUASH_TOLERANCE
    _refuse(f"{where}, action, continuous part", u, far, f"it must be {action.squash}(z)")


def _refuse(where: str, value: Array, bad: Array, why: str) -> None:
    """Raise BadMessage with the first element that is ``bad``."""
    if bad.any():
        index = np.unravel_index(int(bad.argmax()), bad.shape)
        place = ", ".join(str(int(i)) for i in index)
        raise BadMessage(f"{where} [{place}] is {value[index]}: {why}")


STRUCTURE = 2**20
"""Bytes of a message besides the arrays of a segment: the other messages, and many chunks of a step, pass."""


def message_limit(specs: Mapping[str, AgentSpec], carries: Mapping[str, Shape], max_length: int) -> int:
    """Return the bytes of the largest message that a learner reads, with the segment of one agent.

    specs:      observations and actions of each behaviour.
    carries:    shape of each one's stored carry, ``(0,)`` without memory.
    max_length: transitions of the longest segment.
    """
    return STRUCTURE + max(_nbytes(spec, carries[name], max_length) for name, spec in specs.items())


def _nbytes(spec: AgentSpec, carry: Shape, length: int) -> int:
    arrays = [((length + 1, *shape), dtype) for _, shape, dtype in spec.obs.items()]
    arrays += _columns(spec.action, carry, length).values()
    return sum(prod(shape) * np.dtype(dtype).itemsize for shape, dtype in arrays)
