"""Ring of rows: observations, actions and rewards, and the links between the rows of an episode.

Row ids grow for ever and ``slot = id mod capacity``, so the id in a slot need not be stored: a row is alive
while ``next_id − capacity ≤ id < next_id``. The matrices of the ring are listed in ``layout.py``.

The continuous action is not stored: it is recomputed by ``ActionSpec.squashed`` of the stored float32 z, bit
for bit the actor's. Nor are next observations: they are the next row.
Of a stack of frames only the newest is stored; the others are those of the rows before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from algorithm.core.data import PERSON_LOGP, Array, Bool, Float, Int
from algorithm.core.spec import AgentSpec
from algorithm.replay.layout import ArrayChunks, Layout, Records, Saved, id_ranges, record_type

PREV, NEXT, STEP = 0, 1, 2  # columns of ``links``
TERMINATED, TRUNCATED = 1, 2  # bits of links[:, NEXT]
FLAG_BITS = 2
MAX_CAPACITY = 2 ** (31 - FLAG_BITS) - 1  # a distance must fit beside the flags

Index = slice | Int


class Storage:
    """Arrays of the ring. Memory is reserved at once but touched only as rows are written."""

    def __init__(self, spec: AgentSpec, capacity: int, carry_shape: tuple[int, ...] = ()) -> None:
        """Reserve ``capacity`` rows; ``carry_shape`` () or any shape with a 0 means no carry is stored.

        Raises ValueError for a capacity below 2 (a transition needs two rows) or above 2^29 − 1.
        """
        if not 2 <= capacity <= MAX_CAPACITY:
            raise ValueError(f"replay capacity must be in 2 … {MAX_CAPACITY} rows, got {capacity}")
        self.spec = spec
        self.capacity = capacity
        self.carry_shape = carry_shape or (0,)
        self.next_id = 0
        self.num_transitions = 0
        self.layout = Layout(spec, carry_shape)
        self.discrete = spec.action.discrete
        # Every matrix by name, [capacity, width]; the four that are always there have names of their own too.
        self.arrays: dict[str, Array] = {
            name: np.zeros((capacity, width), kind) for name, (width, kind) in self.layout.matrices.items()
        }
        self.acted: Float = self.arrays["acted"].view(np.float32)
        self.byte: NDArray[np.uint8] = self.arrays["byte"].view(np.uint8)
        self.links: NDArray[np.int32] = self.arrays["links"].view(np.int32)
        self.carry: Float = self.arrays["carry"].view(np.float32)
        self.saved = Saved()
        self.record_type = record_type(self.layout)
        self._columns = [name for name, (width, _) in self.layout.matrices.items() if width]

    def __len__(self) -> int:
        """Return the number of rows in use."""
        return min(self.next_id, self.capacity)

    @property
    def oldest(self) -> int:
        """Smallest id that is alive, or ``next_id`` if none is."""
        return max(self.next_id - self.capacity, 0)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for all rows."""
        return sum(array.nbytes for array in self.arrays.values())

    def locate(self, first_id: int, n: int) -> Index:
        """Return slots of the ids first_id … first_id + n − 1: a slice unless they wrap around the ring."""
        start = first_id % self.capacity
        if start + n <= self.capacity:
            return slice(start, start + n)
        return np.arange(start, start + n) % self.capacity

    def ids_in(self, slots: Int) -> Int:
        """Return the id of the newest row in each of the ``slots``."""
        newest = self.next_id - 1
        position = newest % self.capacity
        ids: Int = slots + (newest - position)
        ids -= self.capacity * (slots > position)
        return ids

    def alive(self, ids: Int) -> Bool:
        """Return the mask of the ``ids`` that have not been overwritten; −1 counts as overwritten."""
        return ids >= self.oldest

    def is_transition(self, slots: Int) -> Bool:
        """Return the mask of slots that hold a row with an action."""
        result: Bool = self.links[slots, NEXT] != 0
        return result

    def by_person(self, since: int) -> Int:
        """Return the ids from ``since`` on of the transitions whose action a person has chosen."""
        ids = np.arange(max(since, self.oldest), self.next_id)
        slots = ids % self.capacity
        chosen = self.acted[slots, self.layout.logp.start] == PERSON_LOGP
        by_person: Int = ids[chosen & self.is_transition(slots)]
        return by_person

    def reserve(self, n: int) -> tuple[int, Index]:
        """Take n rows, free ones or else the oldest; return the first one's new id, and the slots of all."""
        first = self.next_id
        slots = self.locate(first, n)
        self.num_transitions -= int(np.count_nonzero(self.links[slots, NEXT]))
        self.next_id += n
        return first, slots

    def write(self, slots: Index, obs: Mapping[str, Array], mask: Bool, carry: Float) -> None:
        """Write n rows without actions; the caller sets their links[PREV] and links[STEP].

        obs: [n, …]; mask: [n, ΣN]; carry: [n, *C]
        """
        n = len(mask)
        for name, matrix, columns, _, stack in self.layout.fields:
            value = obs[name] if stack == 1 else obs[name][:, -1]
            self.arrays[matrix][slots, columns] = value.reshape(n, -1)
        self.acted[slots] = 0.0
        if self.discrete:
            self.byte[slots, : self.discrete] = mask
            self.byte[slots, self.discrete :] = 0
        if self.carry.shape[1]:
            self.carry[slots] = carry.reshape(n, -1)
        self.links[slots, NEXT] = 0

    def holds(self, row: int, obs: Mapping[str, Array]) -> bool:
        """Return whether the row of the id ``row`` has the first observation of [n, …], bit for bit."""
        for name, matrix, columns, _, stack in self.layout.fields:
            kept = self.arrays[matrix][row % self.capacity, columns]
            first = obs[name][0] if stack == 1 else obs[name][0, -1]
            if first.astype(kept.dtype).tobytes() != kept.tobytes():
                return False
        return True

    def act(self, slots: Index, z: Float, logp: Float, reward: Float, onehot: Float, link: Int) -> None:
        """Write actions and rewards of n rows, which makes them transitions.

        z: [n, A_c]; logp: [n, H]; reward: [n]; onehot: [n, ΣN]; link: [n] of the column ``NEXT``
        """
        layout = self.layout
        if layout.z.stop:
            self.acted[slots, layout.z] = z
        self.acted[slots, layout.logp] = logp
        self.acted[slots, layout.reward] = reward
        if self.discrete:
            self.byte[slots, self.discrete :] = onehot
        self.links[slots, NEXT] = link
        self.num_transitions += len(reward)

    def records(self) -> ArrayChunks:
        """Return records of all living rows, in the order of their ids."""
        return self._chunks_of(np.empty(0, np.int64), self.oldest)

    def unsaved(self) -> ArrayChunks:
        """Return records of the rows that are new or have changed since the last mark of ``saved``."""
        return self._chunks_of(*self.saved.unsaved(self.oldest, self.next_id))

    def in_order(self, array: Array) -> ArrayChunks:
        """Return the living rows of ``array`` [capacity, …], ordered by id instead of slot."""
        ranges = id_ranges(self.oldest, self.next_id, array[:1].nbytes)
        chunks = (array[self.locate(first, n)] for first, n in ranges)
        return ArrayChunks(array.dtype, (len(self), *array.shape[1:]), chunks)

    def put_in_order(self, array: Array, values: ArrayChunks) -> None:
        """Write ``values``, ordered by id, to the slots of ``array`` [capacity, …]: reverse :meth:`in_order`.

        Raises ValueError for values of another shape or dtype than the living rows'.
        """
        expected = (len(self), *array.shape[1:])
        if values.shape != expected or values.dtype != array.dtype:
            raise ValueError(
                f"replay state: expected {expected} {array.dtype}, got {values.shape} {values.dtype}"
            )
        for slots, chunk in self.places(values):
            array[slots] = chunk

    def places(self, values: ArrayChunks) -> Iterator[tuple[Index, Array]]:
        """Yield (slots, chunk) of each chunk that :meth:`in_order` has returned."""
        first = self.oldest
        for chunk in values.chunks:
            yield self.locate(first, len(chunk)), chunk
            first += len(chunk)

    def load(self, records: Iterable[Records], *, oldest: int, next_id: int, shift: int) -> None:
        """Load the ring whose rows oldest … next_id − 1 are alive.

        records: chunks of :attr:`record_type`; of a row that comes twice the last one counts, and overwritten
            rows are ignored
        shift:   subtracted from all ids; 0, or ``oldest`` if this ring is larger, in which overwritten rows
            would otherwise count as alive
        Raises ValueError if a row is missing, or has an id of next_id or more; the ring is then unusable.
        """
        self.clear()
        missing = np.ones(next_id - oldest, np.bool_)
        for chunk in records:
            ids = chunk["id"]
            if ids.size and ids.max() >= next_id:
                raise ValueError(f"replay state: there is a row {ids.max()}, the next one would be {next_id}")
            alive = ids >= oldest
            ids = ids[alive]
            missing[ids - oldest] = False
            slots = (ids - shift) % self.capacity
            for name in self._columns:
                self.arrays[name][slots] = chunk[name][alive]
        if missing.any():
            raise ValueError(f"replay state: {missing.sum()} of {missing.size} rows are missing")
        self.next_id = next_id - shift
        used = self.links[: len(self)]
        self.num_transitions = int(np.count_nonzero(used[:, NEXT]))
        if shift:  # the row before a chain's first living one must not seem to be alive: ids begin at 0 now
            used[used[:, PREV] > np.arange(len(used)), PREV] = 0

    def clear(self) -> None:
        """Remove all rows."""
        self.links[: len(self)] = 0
        self.next_id = self.num_transitions = 0
        self.saved.forget()

    def _chunks_of(self, touched: Int, first: int) -> ArrayChunks:
        """Return records of the rows ``touched`` and of all from ``first`` on."""

        def chunks() -> Iterator[Array]:
            for at, n in id_ranges(0, len(touched), self.record_type.itemsize):
                yield self._record(touched[at : at + n], touched[at : at + n] % self.capacity)
            for at, n in id_ranges(first, self.next_id, self.record_type.itemsize):
                yield self._record(np.arange(at, at + n), self.locate(at, n))

        return ArrayChunks(self.record_type, (len(touched) + self.next_id - first,), chunks())

    def _record(self, ids: Int, slots: Index) -> Records:
        out = np.empty(len(ids), self.record_type)
        out["id"] = ids
        for name in self._columns:
            out[name] = self.arrays[name][slots]
        return out
