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

from algorithm.core.data import Array, Int, StepBatch
from algorithm.core.spec import Z_LIMIT, ActionSpec, AgentSpec, ObsSpec
from algorithm.env.outputs import held
from algorithm.replay.writer import MAX_STEP, SQUASH_TOLERANCE
from ds.net.protocol import BadMessage, Beat, Episodes, Hello, StepMessage

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
    most:         by behaviour; transitions in a message
    max_message:  bytes of the largest message
    synchronous:  a message is answered only when it has been learned from
    room_timeout: seconds that a message waits for room before its actor is asked to send it again
    """

    agreed: Mapping[str, Any]
    specs: Mapping[str, AgentSpec]
    carry_shapes: Mapping[str, Shape]
    most: Mapping[str, int]
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


def check_steps(message: StepMessage, terms: Terms, *, version: int = MAX_TOTAL) -> None:
    """Raise BadMessage unless agents of these specs could have made every number in the message.

    version: the highest that there may be
    """
    _within("number", message.number, 1, MAX_TOTAL)
    _within("version", message.version, 0, version)
    _within("dropped", message.dropped, 0, MAX_TOTAL)
    for what, of_all in (("closed", message.closed), ("agents", message.agents)):
        for behaviour, agents in of_all.items():
            _check_agents(_where(what, behaviour, terms), agents)
        _within(f"number of {what}", sum(map(len, of_all.values())), 0, MAX_ENVIRONMENTS)
    for behaviour, steps in message.steps.items():
        where = _where("steps", behaviour, terms)
        _check_transitions(
            where, steps, terms.specs[behaviour], terms.carry_shapes[behaviour], terms.most[behaviour]
        )
        _check_chains(where, steps, message.agents.get(behaviour))
    for behaviour, episodes in message.episodes.items():
        _check_episodes(_where("episodes", behaviour, terms), episodes)


def _where(what: str, behaviour: str, terms: Terms) -> str:
    if behaviour not in terms.specs:
        known = ", ".join(map(repr, terms.specs))
        raise BadMessage(f"{what}: there is no behaviour {behaviour[:100]!r}; known: {known}")
    return f"{what} of {behaviour!r}"


def _check_agents(where: str, agents: Int) -> None:
    _check_column(where, agents, (agents.size,), "int64")
    _refuse(where, agents, (agents < 0) | (agents > MAX_AGENT), f"an agent is 0 … {MAX_AGENT}")


def _check_episodes(where: str, episodes: Episodes) -> None:
    agents, returns, lengths = episodes.agents, episodes.returns, episodes.lengths
    _check_agents(where, agents)
    _within(f"{where}: number", len(agents), 0, MAX_ENVIRONMENTS)
    _check_column(f"{where}, lengths", lengths, agents.shape, "int64")
    _check_column(f"{where}, returns", returns, agents.shape, "float64", finite=False)
    _refuse(f"{where}, lengths", lengths, (lengths < 1) | (lengths > MAX_COUNT), f"it is 1 … {MAX_COUNT}")
    sums = np.abs(returns) <= lengths * _MAX_REWARD  # nor is NaN
    _refuse(f"{where}, returns", returns, ~sums, "it is not the sum of so many rewards")


def _within(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadMessage(f"{what} is {value} and must be in {low} … {high}")


def _check_transitions(where: str, steps: StepBatch, spec: AgentSpec, carry: Shape, most: int) -> None:
    n = steps.reward.size
    _within(f"{where}: number of transitions (base_config.max_episode_length)", n, 1, most)
    names = set(spec.obs.names)
    if steps.obs.keys() != names or steps.next_obs.keys() != names:
        seen = sorted(steps.obs.keys() | steps.next_obs.keys())
        raise BadMessage(f"{where}: its observations are {seen}, not {sorted(names)}")
    for name, (tail, dtype) in _columns(spec.action).items():
        _check_column(f"{where}, {name}", getattr(steps, name), (n, *tail), dtype)
    _refuse(f"{where}, streams", steps.streams, (steps.streams < 0) | (steps.streams > MAX_AGENT), "no agent")
    starts = steps.start_steps
    _refuse(f"{where}, start_steps", starts, (starts < 0) | (starts > MAX_STEP - 2), "there is no such step")
    own = n if steps.follows is None else int(np.count_nonzero(steps.follows < 0))
    for prefix, rows in (("", own), ("next_", n)):
        for name, (tail, dtype) in _observed(spec, carry).items():
            kind, _, key = name.partition("/")
            value = getattr(steps, f"{prefix}{kind}")
            _check_column(f"{where}, {prefix}{name}", value[key] if key else value, (rows, *tail), dtype)
        _check_choices(f"{where}, {prefix}obs", getattr(steps, f"{prefix}obs"), spec.obs)
    if spec.action.branches:
        _check_discrete(where, steps, spec)
    if spec.action.continuous:
        _check_continuous(where, steps, spec)


def _check_chains(where: str, steps: StepBatch, agents: Int | None) -> None:
    """Check that every episode goes on, ends, or is that of an agent that is there afterwards."""
    if steps.torn:
        raise BadMessage(f"{where}: an episode breaks off without an end")
    open_ = ~steps.ended
    if steps.follows is not None:
        open_[steps.follows[steps.follows >= 0]] = False
    if not open_.any():
        return
    there = np.isin(steps.streams, steps.streams[:0] if agents is None else agents)
    _refuse(f"{where}, streams", steps.streams, open_ & ~there, "it is open, and its agent is not there")


def _columns(action: ActionSpec) -> Mapping[str, tuple[Shape, str]]:
    """Return name → (shape of a row, dtype) of the columns with a row for each transition."""
    return {
        "streams": ((), "int64"),
        "start_steps": ((), "int64"),
        "action": ((action.size,), "float32"),
        "z": ((action.continuous,), "float32"),
        "behaviour_logp": ((action.record_size,), "float32"),
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
    }


def _observed(spec: AgentSpec, carry: Shape) -> Mapping[str, tuple[Shape, str]]:
    """Return likewise the columns with one for each observation; ``carry``: shape of one."""
    return {
        **{f"obs/{name}": (shape, dtype) for name, shape, dtype in spec.obs.items()},
        "action_mask": ((spec.action.discrete,), "bool"),
        "carry": (carry, "float32"),
    }


def _check_column(
    where: str, value: Array, shape: tuple[int, ...], dtype: str, *, finite: bool = True
) -> None:
    if value.shape != shape:
        raise BadMessage(f"{where}: expected shape {shape}, got {value.shape}")
    if value.dtype != dtype:
        raise BadMessage(f"{where}: expected {dtype}, got {value.dtype}")
    if finite and value.dtype.kind == "f" and not held(value).all():
        _refuse(where, value, ~held(value), "it must be finite")


def _check_choices(where: str, seen: Mapping[str, Array], obs: ObsSpec) -> None:
    """Check that choices are in range; an encoder would index a one-hot outside its width."""
    for name, shape, counts in zip(obs.names, obs.shapes, obs.categories, strict=True):
        if counts:
            limit = np.array(counts).reshape(shape)
            outside = np.less(seen[name], 0) | np.greater_equal(seen[name], limit)
            _refuse(f"{where}/{name}", seen[name], outside, "there is no such choice")


def _check_discrete(where: str, steps: StepBatch, spec: AgentSpec) -> None:
    onehot = steps.action[:, : spec.action.discrete]
    mask = steps.acted_on(steps.action_mask, steps.next_action_mask)
    _refuse(f"{where}, action", onehot, (onehot != 0.0) & (onehot != 1.0), "a one-hot has only 0 and 1")
    _refuse(f"{where}, action", onehot, (onehot == 1.0) & ~mask, "action_mask does not allow that")
    for i, branch in enumerate(spec.action.branch_slices):
        chosen = onehot[:, branch].sum(1)
        _refuse(f"{where}, action, branch {i}", chosen, chosen != 1.0, "exactly one choice must be made")
        for name, allowed in (("action_mask", mask), ("next_action_mask", steps.next_action_mask)):
            left = allowed[:, branch].sum(1)
            _refuse(f"{where}, {name}, branch {i}", left, left == 0, "a choice must be allowed")


def _check_continuous(where: str, steps: StepBatch, spec: AgentSpec) -> None:
    u = steps.action[:, spec.action.discrete :]
    action = spec.action
    if action.squash == "tanh":
        _refuse(f"{where}, z", steps.z, np.abs(steps.z) > Z_LIMIT, f"its limit is ±{Z_LIMIT}")
    far = np.abs(action.squashed(steps.z) - u) > SQUASH_TOLERANCE
    _refuse(f"{where}, action, continuous part", u, far, f"it must be {action.squash}(z)")


def _refuse(where: str, value: Array, bad: Array, why: str) -> None:
    """Raise BadMessage with the first element that is ``bad``."""
    if bad.any():
        index = np.unravel_index(int(bad.argmax()), bad.shape)
        place = ", ".join(str(int(i)) for i in index)
        raise BadMessage(f"{where} [{place}] is {value[index]}: {why}")


STRUCTURE = 2**22
"""Bytes of a message besides transitions: agents, those closed, and episodes, as many as there may be."""

LEAST = 2**20
"""Bytes of transitions that may be in a message even if episodes are short: a step of a thousand agents."""


def most_rows(spec: AgentSpec, carry: Shape, max_length: int, limit: int | None) -> int:
    """Return the number of transitions of a behaviour in a message.

    max_length: ``base_config.max_episode_length``; limit: of the family, None without any
    """
    return max_length + LEAST // _row_bytes(spec, carry) if limit is None else min(max_length, limit)


def message_limit(
    specs: Mapping[str, AgentSpec], carries: Mapping[str, Shape], most: Mapping[str, int]
) -> int:
    """Return the bytes of the largest message that a learner reads.

    specs:   observations and actions of each behaviour.
    carries: shape of each one's stored carry, ``(0,)`` without memory.
    most:    transitions of each one in a message.
    """
    return STRUCTURE + sum(most[name] * _row_bytes(spec, carries[name]) for name, spec in specs.items())


def _row_bytes(spec: AgentSpec, carry: Shape) -> int:
    """Return the bytes of a transition with both of its observations."""
    columns = [*_columns(spec.action).values(), *2 * [*_observed(spec, carry).values()]]
    return sum(prod(shape) * np.dtype(dtype).itemsize for shape, dtype in columns)
