"""Limits on messages, and checks of one before it is stored; a message that passes cannot fail later.

The replay checks shapes again when it stores. Here every number is checked, in the thread that receives, so
that neither a broken actor nor a forged message reaches the learner's loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np

from algorithm.core.data import UNKNOWN_LOGP, Array, Bool, Int, StepBatch
from algorithm.core.spec import Z_LIMIT, ActionSpec, AgentSpec
from algorithm.env.outputs import fits_float32
from algorithm.replay.writer import MAX_STEP, SQUASH_TOLERANCE
from ds.net.protocol import MAX_COUNT, MAX_TOTAL, BadMessage, Episodes, StepMessage

MAX_ENVIRONMENTS = 2**16
"""Maximum number of environments of one actor."""

AHEAD = 2**40
"""Largest accepted jump of an actor's counts: an earlier learner may have been further than its checkpoint.

A thousand a second need 34 years for it, and a billion of such jumps reach no limit of the numbers.
"""

_MAX_REWARD = float(np.finfo(np.float32).max)

Shape = tuple[int, ...]

_INT, _FLOAT, _DOUBLE, _BOOL = map(np.dtype, ("int64", "float32", "float64", "bool"))
_LARGEST = np.uint64(MAX_COUNT)


class MessageColumn(NamedTuple):
    """Requirements for one array of transitions.

    name:  as in ``StepBatch.columns``
    tail:  shape of a row
    heads: it has rows only for transitions that follow no other one of the message
    limit: largest integer, or an array of them, unsigned and as wide as ``dtype``; None for any
    why:   reason for refusing a larger or negative integer
    """

    name: str
    tail: Shape
    dtype: np.dtype[Any]
    heads: bool = False
    limit: Any = None
    why: str = "there is no such choice"


def _columns(spec: AgentSpec, carry: Shape) -> Sequence[MessageColumn]:
    """Return all columns; those with a row for each transition first. ``carry``: shape of a stored carry."""
    action, obs = spec.action, spec.obs
    columns = [
        MessageColumn("streams", (), _INT, limit=_LARGEST, why="no agent"),
        MessageColumn("start_steps", (), _INT, limit=np.uint64(MAX_STEP - 2), why="there is no such step"),
        MessageColumn("action", (action.size,), _FLOAT),
        MessageColumn("z", (action.continuous,), _FLOAT),
        MessageColumn("behaviour_logp", (action.record_size,), _FLOAT),
        MessageColumn("reward", (), _FLOAT),
        MessageColumn("terminated", (), _BOOL),
        MessageColumn("truncated", (), _BOOL),
    ]
    for prefix, heads in (("next_", False), ("", True)):
        for (name, shape, dtype), counts in zip(obs.items(), obs.categories, strict=True):
            limit = _last_choices(counts, shape, np.dtype(dtype)) if counts else None
            columns.append(MessageColumn(f"{prefix}obs/{name}", shape, np.dtype(dtype), heads, limit))
        columns.append(MessageColumn(f"{prefix}action_mask", (action.discrete,), _BOOL, heads))
        columns.append(MessageColumn(f"{prefix}carry", carry, _FLOAT, heads))
    return columns


def _last_choices(counts: Sequence[int], shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Return the largest value of each element of an observation that holds choices."""
    unsigned = np.dtype(f"u{dtype.itemsize}")
    return (np.array(counts).reshape(shape) - 1).clip(max=np.iinfo(unsigned).max).astype(unsigned)


@dataclass(frozen=True, kw_only=True)
class AcceptanceRules:
    """Requirements that an actor and its messages meet.

    agreed:       see :func:`ds.compatibility.agreed`
    specs, carry_shapes: by behaviour; of one stored carry, (0,) where none is stored
    most:         by behaviour; transitions in a message
    synchronous:  a message is answered only when it has been learned from
    room_timeout: seconds that a message waits for room before its actor has to send it again
    room:         by behaviour; rows of its replay, which one agent's transitions in a message must not fill
    """

    agreed: Mapping[str, Any]
    specs: Mapping[str, AgentSpec]
    carry_shapes: Mapping[str, Shape]
    most: Mapping[str, int]
    synchronous: bool
    room_timeout: float
    room: Mapping[str, int]

    @property
    def max_message(self) -> int:
        """Bytes of the largest message that a learner reads."""
        return STRUCTURE + sum(
            self.most[name] * _row_bytes(columns) for name, columns in self.columns.items()
        )

    @cached_property
    def columns(self) -> Mapping[str, Sequence[MessageColumn]]:
        """Columns of each behaviour's transitions, laid out once for all messages."""
        return {name: _columns(spec, self.carry_shapes[name]) for name, spec in self.specs.items()}


def check_steps(message: StepMessage, rules: AcceptanceRules, *, version: int = MAX_TOTAL) -> None:
    """Raise BadMessage unless agents of these specs could have sent it; ``version``: the highest allowed."""
    _within("version", message.version, 0, version)
    for what, of_all in (("closed", message.closed), ("agents", message.agents)):
        for behaviour, agents in of_all.items():
            _check_agents(_where(what, behaviour, rules), agents)
        _within(f"number of {what}", sum(map(len, of_all.values())), 0, MAX_ENVIRONMENTS)
    for behaviour, steps in message.steps.items():
        where = _where("steps", behaviour, rules)
        what = f"{where}: number of transitions (base_config.max_episode_length)"
        if steps.reward.ndim != 1:
            raise BadMessage(f"{where}, reward: expected one dimension, got shape {steps.reward.shape}")
        _within(what, steps.reward.size, 1, rules.most[behaviour])
        _check_columns(where, steps, rules.specs[behaviour], rules.columns[behaviour])
        if steps.reward.size >= rules.room.get(behaviour, MAX_TOTAL):
            longest = int(np.unique(steps.streams, return_counts=True)[1].max())
            _within(f"{where}: transitions of one agent", longest, 1, rules.room[behaviour] - 1)
        _check_chains(where, steps, message.agents.get(behaviour))
        _check_actions(where, steps, rules.specs[behaviour].action)
    for behaviour, episodes in message.episodes.items():
        _check_episodes(_where("episodes", behaviour, rules), episodes)


def _where(what: str, behaviour: str, rules: AcceptanceRules) -> str:
    if behaviour not in rules.specs:
        known = ", ".join(map(repr, rules.specs))
        raise BadMessage(f"{what}: there is no behaviour {behaviour[:100]!r}; known: {known}")
    return f"{what} of {behaviour!r}"


def _within(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadMessage(f"{what} is {value} and must be in {low} … {high}")


def _check_agents(where: str, agents: Int) -> None:
    _check_kind(where, agents, (agents.size,), _INT)
    _refuse(where, agents, _outside(agents, _LARGEST), f"an agent is 0 … {MAX_COUNT}")


def _check_episodes(where: str, episodes: Episodes) -> None:
    agents, returns, lengths = episodes.agents, episodes.returns, episodes.lengths
    _check_agents(where, agents)
    _within(f"{where}: number", len(agents), 0, MAX_ENVIRONMENTS)
    _check_kind(where, lengths, agents.shape, _INT, "lengths")
    _check_kind(where, returns, agents.shape, _DOUBLE, "returns")
    _refuse(where, lengths, _outside(lengths - 1, _LARGEST - 1), f"it is 1 … {MAX_COUNT}", "lengths")
    sums = np.abs(returns) <= lengths * _MAX_REWARD  # nor is NaN
    _refuse(where, returns, ~sums, "it is not the sum of so many rewards", "returns")


def _check_columns(where: str, steps: StepBatch, spec: AgentSpec, columns: Sequence[MessageColumn]) -> None:
    """Check shapes, dtypes and numbers of all columns.

    ``columns`` begin with those from which ``steps.num_heads`` is computed.
    """
    names = set(spec.obs.names)
    if steps.obs.keys() != names or steps.next_obs.keys() != names:
        seen = sorted(steps.obs.keys() | steps.next_obs.keys())
        raise BadMessage(f"{where}: its observations are {seen}, not {sorted(names)}")
    values, n = steps.columns(), steps.reward.size
    for name, tail, dtype, heads, limit, why in columns:
        value, rows = values[name], steps.num_heads if heads else n
        _check_kind(where, value, (rows, *tail), dtype, name)
        if limit is not None:
            _refuse(where, value, _outside(value, limit), why, name)
        elif dtype.kind == "f" and value.size:
            finite = np.isfinite(value) if dtype is _FLOAT else fits_float32(value)
            if np.count_nonzero(finite) != value.size:
                _refuse(where, value, ~finite, "it must be finite", name)


def _check_chains(where: str, steps: StepBatch, agents: Int | None) -> None:
    """Check that no episode breaks off, and that open ones are of ``agents``, those there afterwards."""
    if steps.torn:
        raise BadMessage(f"{where}: an episode breaks off without an end")
    if np.count_nonzero(steps.ended) == steps.num_heads:  # as many ends as beginnings
        return
    open_ = ~steps.ended
    if steps.follows is not None:
        open_[steps.follows[steps.follows >= 0]] = False
    there = set() if agents is None else set(agents.tolist())
    if not there.issuperset(steps.streams[open_].tolist()):
        gone = open_ & ~np.isin(steps.streams, list(there))
        _refuse(where, steps.streams, gone, "it is open, and its agent is not there", "streams")


def _check_actions(where: str, steps: StepBatch, action: ActionSpec) -> None:
    logp = steps.behaviour_logp
    if action.squash == "clip" or action.records == "distribution":  # families with rollouts
        _refuse(where, logp, logp <= UNKNOWN_LOGP, "the policy has to choose the actions", "behaviour_logp")
    if action.branches:
        _check_discrete(where, steps, action)
    if action.continuous:
        u = steps.action[:, action.discrete :]
        if action.squash == "tanh":
            _refuse(where, steps.z, np.abs(steps.z) > Z_LIMIT, f"its limit is ±{Z_LIMIT}", "z")
        far = np.abs(action.squashed(steps.z) - u) > SQUASH_TOLERANCE
        _refuse(where, u, far, f"it must be {action.squash}(z)", "action, continuous part")


def _check_discrete(where: str, steps: StepBatch, action: ActionSpec) -> None:
    """Check choices and masks. A mask that allows the choices made leaves one in each branch."""
    onehot, following = steps.action[:, : action.discrete], steps.next_action_mask
    chosen, allowed = onehot != 0.0, steps.acted_on(steps.action_mask, following)
    _refuse(where, onehot, onehot != chosen, "a one-hot has only 0 and 1", "action")
    _refuse(where, onehot, chosen > allowed, "action_mask does not allow that", "action")
    branches = [0, *accumulate(action.branches[:-1])]
    choices = np.add.reduceat(onehot, branches, 1)
    _refuse(where, choices, choices != 1.0, "exactly one choice must be made", "action, branches")
    left = np.logical_or.reduceat(following, branches, 1)
    _refuse(where, left, ~left, "a choice must be allowed", "next_action_mask, branches")


def _check_kind(where: str, value: Array, shape: Shape, dtype: np.dtype[Any], name: str = "") -> None:
    if value.shape != shape:
        raise BadMessage(f"{where}{name and ', '}{name}: expected shape {shape}, got {value.shape}")
    if value.dtype != dtype:
        raise BadMessage(f"{where}{name and ', '}{name}: expected {dtype}, got {value.dtype}")


def _outside(value: Array, limit: Any) -> Bool:  # noqa: ANN401 - an unsigned number, or an array of them
    """Return which integers are not in 0 … ``limit``; read as unsigned, a negative one is too large."""
    outside: Bool = value.view(limit.dtype) > limit
    return outside


def _refuse(where: str, value: Array, bad: Bool, why: str, name: str = "") -> None:
    """Raise BadMessage with the first element that is ``bad``."""
    if np.count_nonzero(bad):  # several times as fast as any() where there are few
        index = np.unravel_index(int(bad.argmax()), bad.shape)
        place = ", ".join(str(int(i)) for i in index)
        raise BadMessage(f"{where}{name and ', '}{name} [{place}] is {value[index]}: {why}")


STRUCTURE = 2**22
"""Bytes of a message besides transitions: agents, those closed, and episodes, as many as there may be."""

LEAST = 2**20
"""Bytes of transitions that may be in a message even if episodes are short: a step of a thousand agents."""


def most_rows(spec: AgentSpec, carry: Shape, max_length: int, limit: int | None) -> int:
    """Return the number of transitions of a behaviour in a message.

    max_length: ``base_config.max_episode_length``; limit: of the family, None without any
    """
    return (
        max_length + LEAST // _row_bytes(_columns(spec, carry)) if limit is None else min(max_length, limit)
    )


def _row_bytes(columns: Sequence[MessageColumn]) -> int:
    """Return the size of a transition in bytes, with both of its observations."""
    return sum(prod(column.tail) * column.dtype.itemsize for column in columns)
