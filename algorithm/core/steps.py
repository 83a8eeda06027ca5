"""Transitions from environments to the replay. The dimension legend is in ``algorithm/README.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Float = NDArray[np.float32]
Bool = NDArray[np.bool_]
Int = NDArray[np.int64]
Double = NDArray[np.float64]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """L consecutive transitions of one stream, as numpy; the last observation has no action yet.

    A stream is an agent's transitions, episode after episode. The first observation is the stream's newest
    row if that is the one at ``start_step``. Only the last step may be terminated or truncated.
    """

    stream: int
    start_step: int  # step in the episode of the first observation
    obs: dict[str, Array]  # [L+1, ...] in the dtype of the spec
    action_mask: Bool  # [L+1, ΣN] true where a discrete action is allowed; width 0 without branches
    carry: Float  # [L+1, *C_stored] before each observation; width 0 without memory
    action: Float  # [L, A]
    z: Float  # [L, A_c] pre-tanh value of the continuous part
    behaviour_logp: Float  # [L, H] log-probabilities, or the whole distribution; ``ActionSpec.records``
    reward: Float  # [L]
    terminated: Bool  # [L]
    truncated: Bool  # [L]
    lag: int = 0  # versions that the weights which acted are behind the newest

    @property
    def length(self) -> int:
        """L, the number of transitions."""
        return len(self.reward)

    def steps(self) -> StepBatch:
        """Return the transitions as a batch of steps."""
        return StepBatch(
            streams=np.full(self.length, self.stream),
            start_steps=np.arange(self.start_step, self.start_step + self.length),
            obs={name: value[:1] for name, value in self.obs.items()},
            action_mask=self.action_mask[:1],
            carry=self.carry[:1],
            next_obs={name: value[1:] for name, value in self.obs.items()},
            next_action_mask=self.action_mask[1:],
            next_carry=self.carry[1:],
            action=self.action,
            z=self.z,
            behaviour_logp=self.behaviour_logp,
            reward=self.reward,
            terminated=self.terminated,
            truncated=self.truncated,
            lag=self.lag,
        )


_NONE: Int = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """N transitions in the order in which they were made, as numpy: a step of all environments, or several.

    A row that follows another one, as the next step of an agent's episode, acts on the last observation of
    that one. So only the M rows that follow none have an observation of their own: in a single step, all.
    Equal to N segments of one transition in the order of the rows, which :meth:`segments` returns.
    """

    streams: Int  # [N]
    start_steps: Int  # [N] step in the episode of the observation that was acted on
    obs: dict[str, Array]  # [M, ...] in the dtype of the spec
    action_mask: Bool  # [M, ΣN]
    carry: Float  # [M, *C_stored] before ``obs``; width 0 without memory
    next_obs: dict[str, Array]  # [N, ...] the final observation where the episode ended
    next_action_mask: Bool  # [N, ΣN]
    next_carry: Float  # [N, *C_stored]
    action: Float  # [N, A]
    z: Float  # [N, A_c]
    behaviour_logp: Float  # [N, H]
    reward: Float  # [N]
    terminated: Bool  # [N]
    truncated: Bool  # [N]
    lag: int = 0  # versions that the weights which acted are behind the newest

    def __len__(self) -> int:
        """Return N."""
        return len(self.reward)

    @cached_property
    def again(self) -> tuple[Int, Int]:
        """Rows [k] whose stream has a later row in the batch, and that next row of each [k]."""
        if len(set(self.streams.tolist())) == len(self):
            return _NONE, _NONE
        order = np.argsort(self.streams, kind="stable")
        before, after = order[:-1], order[1:]
        same = self.streams[before] == self.streams[after]
        return before[same], after[same]

    @cached_property
    def ended(self) -> Bool:
        """Whether an episode ended with each row [N]."""
        return self.terminated | self.truncated

    @cached_property
    def follows(self) -> Int | None:
        """Row that each row follows in its episode [N], −1 for none; None if each stream has one row only."""
        before, after = self.again
        if not len(after):
            return None
        goes_on = (self.start_steps[after] == self.start_steps[before] + 1) & ~self.ended[before]
        follows = np.full(len(self), -1)
        follows[after[goes_on]] = before[goes_on]
        return follows

    @cached_property
    def num_heads(self) -> int:
        """M, the number of rows that follow none."""
        return len(self) if self.follows is None else int(np.count_nonzero(self.follows < 0))

    @property
    def torn(self) -> bool:
        """Whether an episode breaks off among the rows: no row ends it, but its stream has a new episode."""
        if self.follows is None:
            return False
        before, after = self.again
        return bool(((self.follows[after] < 0) & ~self.ended[before]).any())

    def chain(self) -> Segment:
        """Return the rows as one segment; each must follow the one before."""
        return Segment(
            stream=self.streams.item(0),
            start_step=self.start_steps.item(0),
            obs={name: np.concatenate((value, self.next_obs[name])) for name, value in self.obs.items()},
            action_mask=np.concatenate((self.action_mask, self.next_action_mask)),
            carry=np.concatenate((self.carry, self.next_carry)),
            action=self.action,
            z=self.z,
            behaviour_logp=self.behaviour_logp,
            reward=self.reward,
            terminated=self.terminated,
            truncated=self.truncated,
            lag=self.lag,
        )

    def moved(self, first: int, lag: int) -> StepBatch:
        """Return the rows with ``first`` added to the numbers of streams, and with another ``lag``."""
        other = copy(self)  # replace() would lose the cached order of the rows
        vars(other).update(streams=self.streams + first, lag=lag)
        return other

    def acted_on(self, heads: NDArray[Scalar], after: NDArray[Scalar]) -> NDArray[Scalar]:
        """Return the value before each row's action [N, ...], such as the observation that it acted on.

        heads: [M, ...] of the rows that follow none; after: [N, ...] the values after each row
        """
        if self.follows is None:
            return heads
        whole, first = np.empty((len(self), *heads.shape[1:]), heads.dtype), self.follows < 0
        whole[first] = heads
        whole[~first] = after[self.follows[~first]]
        return whole

    def columns(self) -> dict[str, Array]:
        """Return all arrays by name; those of observations as ``obs/NAME`` and ``next_obs/NAME``."""
        columns = {name: getattr(self, name) for name in _PLAIN}
        for prefix in _OBSERVATIONS:
            columns |= {f"{prefix}/{name}": array for name, array in getattr(self, prefix).items()}
        return columns

    @classmethod
    def of_columns(cls, columns: Mapping[str, Array]) -> StepBatch:
        """Return the batch of which :meth:`columns` has returned ``columns``."""
        arrays: dict[str, Any] = {"obs": {}, "next_obs": {}}
        for name, array in columns.items():
            kind, slash, key = name.partition("/")
            if slash:
                arrays[kind][key] = array
            else:
                arrays[kind] = array
        return cls(**arrays)

    def rows(self, chosen: Int) -> StepBatch:
        """Return copies of the rows ``chosen`` of a single step."""
        columns = {name: value[chosen] for name, value in self.columns().items()}
        return replace(self.of_columns(columns), lag=self.lag)

    def new_obs(self, names: Sequence[str]) -> dict[str, Array]:
        """Return each agent's new observations: the first one only at an episode's start."""
        begins = np.flatnonzero(self.start_steps == 0)
        if not len(begins):
            return {name: self.next_obs[name] for name in names}
        heads = begins if self.follows is None else self.start_steps[self.follows < 0] == 0
        return {name: np.insert(self.next_obs[name], begins, self.obs[name][heads], 0) for name in names}

    def rewards(self) -> Iterator[tuple[int, int, list[float], bool]]:
        """Yield each stream, its step, its reward, and whether its episode ended."""
        rewards, ended = self.reward[:, None].tolist(), self.ended.tolist()
        return zip(self.streams.tolist(), self.start_steps.tolist(), rewards, ended, strict=True)

    def parts(self, size: int) -> Iterator[StepBatch]:
        """Yield the same transitions as copies in batches of ``size`` rows; the last one may be smaller."""
        columns = self.columns()
        acted_on = {
            name: self.acted_on(value, columns[f"next_{name}"])
            for name, value in columns.items()
            if f"next_{name}" in columns
        }
        follows = np.full(len(self), -1) if self.follows is None else self.follows
        for first in range(0, len(self), size):
            rows = slice(first, first + size)
            heads = follows[rows] < first
            part = {
                name: acted_on[name][rows][heads] if name in acted_on else value[rows].copy()
                for name, value in columns.items()
            }
            yield replace(self.of_columns(part), lag=self.lag)

    def segments(self) -> Iterator[Segment]:
        """Yield the transition of each row, as copies."""
        return (row.chain() for row in self.parts(1))


_OBSERVATIONS = ("obs", "next_obs")
"""Fields with an array for each observation."""

_PLAIN = tuple(field.name for field in fields(StepBatch) if field.name not in (*_OBSERVATIONS, "lag"))
"""Fields that are one array."""
