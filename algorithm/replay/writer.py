"""Writing of steps of many interleaved streams as linked rows of the ring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from algorithm.core.data import Array, Bool, Float, Int, StepBatch
from algorithm.core.open_streams import OpenStreams
from algorithm.replay.storage import FLAG_BITS, NEXT, PREV, STEP, TERMINATED, TRUNCATED, Storage

NamedOrOne: TypeAlias = Mapping[str, Array] | Array
"""Observations by name, or the array where there is only one."""

MAX_STEP = 2**31 - 1
SQUASH_TOLERANCE = 1e-5  # libraries differ in the last bits of tanh; more than that is another action


class Writer:
    """Writer of rows, which links each to the next one of its stream.

    heads: step and id of each open episode's newest row, which has an observation and no action yet
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.heads = OpenStreams(np.int64)
        action = storage.spec.action
        columns = [
            ("action", (action.size,), np.dtype(np.float32)),
            ("z", (action.continuous,), np.dtype(np.float32)),
            ("behaviour_logp", (action.record_size,), np.dtype(np.float32)),
            ("reward", (), np.dtype(np.float32)),
            ("terminated", (), np.dtype(np.bool_)),
            ("truncated", (), np.dtype(np.bool_)),
        ]
        self._of_heads = [
            ("action_mask", (action.discrete,), np.dtype(np.bool_)),
            ("carry", storage.carry_shape, np.dtype(np.float32)),
            *((f"obs/{name}", shape, np.dtype(kind)) for name, shape, kind in storage.spec.obs.items()),
        ]
        self._of_steps = columns + [(f"next_{name}", tail, dtype) for name, tail, dtype in self._of_heads]

    def add_steps(self, steps: StepBatch) -> tuple[Int, Int] | None:
        """Append N transitions: a row for each, and one more where a chain begins.

        A transition continues its stream's head row if that has the step before, and is not overwritten by
        this write. Otherwise the open chain ends as truncated, and a new one begins.

        Returns ids [N] of the transitions, and of the newest rows. Returns None, and writes nothing, where
        an episode breaks off among them, or they may need more rows than the ring has.
        Raises ValueError, and changes nothing, if they do not fit the spec.
        """
        self._check(steps)
        if steps.torn or 2 * len(steps) > self._storage.capacity:
            return None
        follows = steps.follows
        is_open, at, heads = self.heads.of(steps.streams)
        if follows is not None:
            is_open[steps.again[1]] = False
        continues = self._outlive(is_open & (at == steps.start_steps), heads, follows)
        for stream in steps.streams[is_open & ~continues].tolist():
            self.close(stream)
        begins = ~continues if follows is None else ~continues & (follows < 0)
        taken, newest = self._write_steps(steps, begins, heads)
        if follows is None:
            self.heads.renew(steps.streams, steps.start_steps + 1, newest, steps.ended)
            return taken, newest
        last, none_follows = np.ones((2, len(steps)), np.bool_)
        last[steps.again[0]] = False
        none_follows[follows[follows >= 0]] = False
        self.heads.renew(steps.streams[last], steps.start_steps[last] + 1, newest[last], steps.ended[last])
        return taken, newest[none_follows]

    def transition(
        self, stream: int, obs: NamedOrOne, action: Float, next_obs: NamedOrOne, **rest: float
    ) -> StepBatch:
        """Return a transition that continues the stream's open chain, if ``obs`` is its newest observation.

        obs, next_obs: arrays by name, or the array of a spec with a single observation; action: [A]
        rest: ``reward``, ``terminated``, ``truncated``
        Raises ValueError for an action of another shape, or beyond ±1.
        """
        spec, head = self._storage.spec, self.heads.get(stream)
        flat, action_spec = np.array(action, np.float32), spec.action
        if flat.shape != (action_spec.size,) or not (np.abs(flat) <= 1.0).all():
            raise ValueError(f"action: expected {action_spec.size} numbers from -1 to 1, got {action!r}")
        before, after = (x if isinstance(x, Mapping) else {spec.obs.names[0]: x} for x in (obs, next_obs))
        z = action_spec.unsquashed(flat[None, action_spec.discrete :])
        flat[action_spec.discrete :] = action_spec.squashed(z)
        seen = {name: np.array([before[name]], kind) for name, _, kind in spec.obs.items()}
        continues = head is not None and self._storage.holds(int(head.number), seen)
        allowed, carry = action_spec.all_allowed(1), np.zeros((1, *self._storage.carry_shape), np.float32)
        return StepBatch(
            streams=np.array([stream]),
            start_steps=np.array([head.step if head is not None and continues else 0]),
            obs=seen,
            next_obs={name: np.array([after[name]], kind) for name, _, kind in spec.obs.items()},
            action_mask=allowed,
            next_action_mask=allowed,
            carry=carry,
            next_carry=carry,
            action=flat[None],
            z=z,
            behaviour_logp=np.zeros((1, action_spec.record_size), np.float32),
            reward=np.array([rest["reward"]], np.float32),
            terminated=np.array([rest["terminated"]], np.bool_),
            truncated=np.array([rest["truncated"]], np.bool_),
        )

    def close(self, stream: int) -> None:
        """End the stream's open episode as truncated; its head row becomes the final row.

        Nothing happens if the stream has no open episode or its last transition has been overwritten.
        """
        head = self.heads.close(stream)
        storage = self._storage
        if head is None:
            return
        # If the head itself is overwritten this reads another row's link, yet ``last`` is dead all the same.
        back = int(storage.links[int(head.number) % storage.capacity, PREV])
        last = int(head.number) - back
        if back and last >= storage.next_id - storage.capacity:
            storage.saved.touch(last)
            storage.links[last % storage.capacity, NEXT] |= TRUNCATED

    def _outlive(self, continues: Bool, heads: Int, follows: Int | None) -> Bool:
        """Return which of the rows that continue a chain [N] find its head alive when their turn comes."""
        oldest = self._storage.next_id + 1 - self._storage.capacity
        if not np.count_nonzero(continues & (heads < oldest + 2 * len(heads))):
            return continues
        inner = np.zeros(len(heads), np.bool_) if follows is None else follows >= 0
        outlive = []
        for continued, head, is_inner in zip(continues.tolist(), heads.tolist(), inner.tolist(), strict=True):
            outlive.append(continued and head >= oldest)
            oldest += 1 if outlive[-1] or is_inner else 2
        return np.array(outlive)

    def _write_steps(self, steps: StepBatch, begins: Bool, heads: Int) -> tuple[Int, Int]:
        """Write the rows of N steps; return the ids [N] of the transitions and of the rows after them.

        begins: [N] mask of the steps that begin a chain
        heads:  [N] ids of the rows that steps continue which were stored before; others are ignored
        """
        storage, follows = self._storage, steps.follows
        rows = begins.nonzero()[0]
        first, slots = storage.reserve(len(steps) + len(rows))
        newest = first + np.arange(len(steps)) + np.cumsum(begins)
        taken = np.where(begins, newest - 1, heads)
        if follows is not None:
            inner = follows >= 0
            taken[inner] = newest[follows[inner]]
        distance = newest - taken
        storage.saved.touch(*taken[taken < first].tolist())
        if len(rows):
            slots = newest % storage.capacity
            places = rows if follows is None else (np.cumsum(follows < 0) - 1)[rows]
            chosen = {name: value[places] for name, value in steps.obs.items()}
            begin_slots = taken[rows] % storage.capacity
            storage.write(begin_slots, chosen, steps.action_mask[places], steps.carry[places])
            storage.links[begin_slots, PREV] = 0
            storage.links[begin_slots, STEP] = steps.start_steps[rows]
        storage.write(slots, steps.next_obs, steps.next_action_mask, steps.next_carry)
        storage.links[slots, PREV] = distance
        storage.links[slots, STEP] = steps.start_steps + 1
        alive = storage.alive(taken)  # others are overwritten by later rows
        on = slice(None) if np.count_nonzero(alive) == len(taken) else alive
        link = (distance << FLAG_BITS) | (TERMINATED * steps.terminated + TRUNCATED * steps.truncated)
        storage.act(
            taken[on] % storage.capacity,
            steps.z[on],
            steps.behaviour_logp[on],
            steps.reward[on],
            steps.action[on, : storage.discrete],
            link[on],
        )
        return taken, newest

    def _check(self, steps: StepBatch) -> None:
        """Raise ValueError for columns that do not fit the spec."""
        if not len(steps):
            raise ValueError("steps: there are none")
        low, high = int(steps.start_steps.min()), int(steps.start_steps.max())
        if low < 0 or high >= MAX_STEP - 1:
            raise ValueError(f"steps: start_steps {low} … {high} are out of range")
        columns = steps.columns()
        for rows, required in ((len(steps), self._of_steps), (steps.num_heads, self._of_heads)):
            for name, tail, dtype in required:
                value = columns.get(name)
                if value is None:
                    raise ValueError(f"steps, {name} is missing")
                if value.shape != (rows, *tail):
                    raise ValueError(f"steps, {name}: expected shape {(rows, *tail)}, got {value.shape}")
                if value.dtype != dtype and not np.can_cast(value.dtype, dtype, "same_kind"):
                    raise ValueError(f"steps, {name}: {value.dtype} cannot be stored as {dtype}")
        self._check_squashed(steps.z, steps.action)

    def _check_squashed(self, z: Float, action: Float) -> None:
        """Raise ValueError if the last number of the continuous action is not that of ``z``.

        One number shows an actor that squashes differently, and costs almost nothing per step.
        """
        continuous, spec = action[:, self._storage.discrete :], self._storage.spec.action
        if z.size and not abs(spec.squashed(z[-1:, -1:]).item() - continuous.item(-1)) <= SQUASH_TOLERANCE:
            raise ValueError(
                f"the continuous action is not {spec.squash}(z), from which the replay restores it"
            )
