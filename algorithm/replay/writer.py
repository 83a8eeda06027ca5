"""Writing of segments and steps of many interleaved streams as linked rows of the ring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from algorithm.core.data import Array, Bool, Float, Int, Segment, StepBatch
from algorithm.core.open_streams import OpenStreams
from algorithm.replay.storage import FLAG_BITS, NEXT, PREV, STEP, TERMINATED, TRUNCATED, Index, Storage

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
        # name, rows beyond the number of transitions, shape of one row
        self._columns: tuple[tuple[str, int, tuple[int, ...]], ...] = (
            ("action_mask", 1, (action.discrete,)),
            ("carry", 1, storage.carry_shape),
            ("action", 0, (action.size,)),
            ("z", 0, (action.continuous,)),
            ("behaviour_logp", 0, (action.record_size,)),
            ("reward", 0, ()),
            ("terminated", 0, ()),
            ("truncated", 0, ()),
        )
        self._observations = [(name, shape, np.dtype(kind)) for name, shape, kind in storage.spec.obs.items()]

    def add(self, segment: Segment) -> Int:
        """Append a segment to its stream; raise ValueError, and change nothing, if it does not fit the spec.

        It continues the stream's head row if that has the step ``start_step`` and the same observation, and
        is not overwritten by this write. Otherwise the open chain ends as truncated, and a new one begins.

        Returns ids [L+1]: those of the transitions, then that of the newest row.
        """
        self._check(segment)
        head = self.heads.get(segment.stream)
        oldest_after = self._storage.next_id + segment.length - self._storage.capacity
        if (
            head is not None
            and head.step == segment.start_step
            and head.number >= oldest_after
            and self._storage.holds(int(head.number), segment.obs)
        ):
            ids = self._continue(segment, int(head.number))
        else:
            self.close(segment.stream)
            ids = self._begin(segment)
        self._end(segment, ids)
        return ids

    def add_steps(self, steps: StepBatch) -> tuple[Int, Int] | None:
        """Append N transitions; raise ValueError, and change nothing, as :meth:`add`.

        The rows are those of N calls of :meth:`add`: one for each transition, two where a chain begins.
        Returns ids [N] of the transitions, and of the newest rows. Returns None, and writes nothing, where
        an episode breaks off among them, or they may need more rows than the ring has.
        """
        self._check_steps(steps)
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

    def segment(
        self, stream: int, obs: NamedOrOne, action: Float, next_obs: NamedOrOne, **rest: float
    ) -> Segment:
        """Return a transition that continues the stream's open chain, with a carry of zeros.

        obs, next_obs: arrays by name, or the array of a spec with a single observation; action: [A]
        rest: ``reward``, ``terminated``, ``truncated``
        Raises ValueError for an action of another shape, or beyond ±1.
        """
        spec, head = self._storage.spec, self.heads.get(stream)
        flat, action_spec = np.array(action, np.float32), spec.action
        if flat.shape != (action_spec.size,) or not (np.abs(flat) <= 1.0).all():
            raise ValueError(f"action: expected {action_spec.size} numbers from -1 to 1, got {action!r}")
        tokens = [x if isinstance(x, Mapping) else {spec.obs.names[0]: x} for x in (obs, next_obs)]
        z = action_spec.unsquashed(flat[None, action_spec.discrete :])
        flat[action_spec.discrete :] = action_spec.squashed(z)
        kinds = {name: kind for name, _, kind in spec.obs.items()}
        return Segment(
            stream=stream,
            start_step=0 if head is None else head.step,
            obs={name: np.stack([x[name] for x in tokens]).astype(kind) for name, kind in kinds.items()},
            action_mask=action_spec.all_allowed(2),
            carry=np.zeros((2, *self._storage.carry_shape), np.float32),
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
        num_rows = 1 + begins
        ends = np.cumsum(num_rows)
        first, slots = storage.reserve(int(ends[-1]))
        newest: Int = first - 1 + ends
        taken = np.where(begins, newest - 1, heads)
        old = ~begins
        if follows is not None:
            inner = follows >= 0
            taken[inner] = newest[follows[inner]]
            old &= ~inner
        distance = newest - taken
        if begins.any():
            slots = newest % storage.capacity
            rows = begins.nonzero()[0]
            places = rows if follows is None else (np.cumsum(follows < 0) - 1)[rows]
            chosen = {name: value[places] for name, value in steps.obs.items()}
            begin_slots = taken[rows] % storage.capacity
            storage.write(begin_slots, chosen, steps.action_mask[places], steps.carry[places])
            storage.links[begin_slots, PREV] = 0
            storage.links[begin_slots, STEP] = steps.start_steps[rows]
        storage.saved.touch(*heads[old].tolist())
        storage.write(slots, steps.next_obs, steps.next_action_mask, steps.next_carry)
        storage.links[slots, PREV] = distance
        storage.links[slots, STEP] = steps.start_steps + 1
        alive = storage.alive(taken)  # others are overwritten by later rows
        on = slice(None) if np.count_nonzero(alive) == len(taken) else alive
        acted = taken[on] % storage.capacity
        onehot = steps.action[on, : storage.discrete]
        storage.act(acted, steps.z[on], steps.behaviour_logp[on], steps.reward[on], onehot)
        flags = TERMINATED * steps.terminated + TRUNCATED * steps.truncated
        storage.links[acted, NEXT] = ((distance << FLAG_BITS) | flags)[on]
        return taken, newest

    def _begin(self, segment: Segment) -> Int:
        """Write all L+1 observations as a chain without a previous row."""
        storage, length = self._storage, segment.length
        first = storage.append(
            segment.obs, segment.action_mask, segment.carry, first_step=segment.start_step, back=0
        )
        self._act(segment, storage.locate(first, length))
        return np.arange(first, first + length + 1)

    def _continue(self, segment: Segment, head: int) -> Int:
        """Write the last L observations as rows that follow the row ``head``."""
        storage, length = self._storage, segment.length
        storage.saved.touch(head)
        distance = storage.next_id - head
        first = storage.append(
            {name: value[1:] for name, value in segment.obs.items()},
            segment.action_mask[1:],
            segment.carry[1:],
            first_step=segment.start_step + 1,
            back=distance,
        )
        ids = np.arange(first - 1, first + length)
        ids[0] = head
        self._act(segment, storage.locate(head, 1) if length == 1 else ids[:-1] % storage.capacity)
        storage.links[head % storage.capacity, NEXT] = distance << FLAG_BITS
        return ids

    def _act(self, segment: Segment, slots: Index) -> None:
        onehot = segment.action[:, : self._storage.discrete]
        self._storage.act(slots, segment.z, segment.behaviour_logp, segment.reward, onehot)

    def _end(self, segment: Segment, ids: Int) -> None:
        """Flag the last transition if the episode ended there, else note the newest row as the head."""
        storage = self._storage
        terminated, truncated = segment.terminated.item(-1), segment.truncated.item(-1)
        if terminated or truncated:
            storage.links[ids[-2] % storage.capacity, NEXT] |= TERMINATED * terminated + TRUNCATED * truncated
            self.heads.close(segment.stream)
        else:
            self.heads.put(segment.stream, segment.start_step + segment.length, storage.next_id - 1)

    def _check(self, segment: Segment) -> None:
        length = segment.length
        if not 1 <= length < self._storage.capacity:
            raise ValueError(
                f"segment of stream {segment.stream}: {length} transitions need {length + 1} rows; it "
                f"must have at least 1 and fit the replay's capacity of {self._storage.capacity} rows"
            )
        if not 0 <= segment.start_step < MAX_STEP - length:
            raise ValueError(
                f"segment of stream {segment.stream}: start_step {segment.start_step} is out of range"
            )
        for name, extra, tail in self._columns:
            shape = getattr(segment, name).shape
            if shape != (length + extra, *tail):
                raise ValueError(f"segment, {name}: expected shape {(length + extra, *tail)}, got {shape}")
        if segment.priority is not None and segment.priority.shape != (length,):
            raise ValueError(f"segment, priority: expected shape {(length,)}, got {segment.priority.shape}")
        for name, tail, dtype in self._observations:
            where = f"segment, obs {name!r}"
            self._check_observation(where, segment.obs.get(name), (length + 1, *tail), dtype)
        if length > 1 and np.count_nonzero(segment.terminated[:-1] | segment.truncated[:-1]):
            raise ValueError("segment: only its last step may be terminated or truncated")
        self._check_squashed(segment.z, segment.action)

    def _check_steps(self, steps: StepBatch) -> None:
        n, heads = len(steps), steps.num_heads
        if n == 0:
            raise ValueError("steps: there are none")
        low, high = int(steps.start_steps.min()), int(steps.start_steps.max())
        if low < 0 or high >= MAX_STEP - 1:
            raise ValueError(f"steps: start_steps {low} … {high} are out of range")
        for prefix, rows in (("", heads), ("next_", n)):
            for name, tail, dtype in self._observations:
                obs = getattr(steps, f"{prefix}obs")
                where = f"steps, {prefix}obs {name!r}"
                self._check_observation(where, obs.get(name), (rows, *tail), dtype)
        for name, extra, tail in self._columns:
            columns = ((name, heads), (f"next_{name}", n)) if extra else ((name, n),)
            for column, rows in columns:
                shape = getattr(steps, column).shape
                if shape != (rows, *tail):
                    raise ValueError(f"steps, {column}: expected shape {(rows, *tail)}, got {shape}")
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

    @staticmethod
    def _check_observation(
        where: str, value: Array | None, shape: tuple[int, ...], dtype: np.dtype[np.generic]
    ) -> None:
        if value is None:
            raise ValueError(f"{where} is missing")
        if value.shape != shape:
            raise ValueError(f"{where}: expected shape {shape}, got {value.shape}")
        if value.dtype != dtype and not np.can_cast(value.dtype, dtype, "same_kind"):
            raise ValueError(f"{where}: {value.dtype} cannot be stored as {dtype}")
