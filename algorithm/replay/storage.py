"""The ring of rows: observations, what followed them, and the links from row to row.

Row ids grow for ever and ``slot = id mod capacity``, so the id in a slot need not be stored: a row is alive
while ``next_id − capacity ≤ id < next_id``. The matrices of the ring are listed in ``layout.py``.

The continuous action is not stored: it is ``np.tanh(z)`` of the stored float32 z, bit for bit what the actor
computed, so it is recomputed when read. Nor are next observations: they are the next row.
Of a stack of frames only the newest is stored; the others are those of the rows before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from algorithm.data import Array, Bool, Float, Int
from algorithm.replay.layout import Layout
from algorithm.spec import AgentSpec

PREV, NEXT, STEP = 0, 1, 2  # columns of ``links``
TERMINATED, TRUNCATED = 1, 2  # bits of links[:, NEXT]
FLAG_BITS = 2
MAX_CAPACITY = 2 ** (31 - FLAG_BITS) - 1  # a distance must fit beside the flags

Index = slice | Int


class Storage:
    """The arrays of the ring. Memory is reserved at once but touched only as rows are written."""

    def __init__(self, spec: AgentSpec, capacity: int, carry_shape: tuple[int, ...] = ()) -> None:
        """``capacity`` counts rows; ``carry_shape`` () or any shape with a 0 means no carry is stored.

        Raises ValueError for a capacity below 2 (a transition needs two rows) or above 2^29 − 1.
        """
        if not 2 <= capacity <= MAX_CAPACITY:
            raise ValueError(f"replay capacity must lie in 2 … {MAX_CAPACITY} rows, got {capacity}")
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
        self.real: Float = self.arrays["real"].view(np.float32)
        self.byte: NDArray[np.uint8] = self.arrays["byte"].view(np.uint8)
        self.links: NDArray[np.int32] = self.arrays["links"].view(np.int32)
        self.carry: Float = self.arrays["carry"].view(np.float32)

    def __len__(self) -> int:
        """Rows in use."""
        return min(self.next_id, self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for all rows."""
        return sum(array.nbytes for array in self.arrays.values())

    def locate(self, first_id: int, n: int) -> Index:
        """Slots of the ids first_id … first_id + n − 1: a slice where they do not wrap around the ring."""
        start = first_id % self.capacity
        if start + n <= self.capacity:
            return slice(start, start + n)
        return np.arange(start, start + n) % self.capacity

    def ids_in(self, slots: Int) -> Int:
        """The id of the newest row written to each slot."""
        newest = self.next_id - 1
        position = newest % self.capacity
        ids: Int = slots + (newest - position)
        ids -= self.capacity * (slots > position)
        return ids

    def alive(self, ids: Int) -> Bool:
        """Which of ``ids``, handed out by this ring, still stand in their slot; −1 never does."""
        return ids >= max(self.next_id - self.capacity, 0)

    def is_transition(self, slots: Int) -> Bool:
        """Which slots hold a row with an action."""
        result: Bool = self.links[slots, NEXT] != 0
        return result

    def append(self, obs: dict[str, Array], mask: Bool, carry: Float, *, first_step: int, back: int) -> int:
        """Write n rows that follow one another, without actions; ``back`` is the first one's links[PREV].

        obs: [n, …]; mask: [n, ΣN]; carry: [n, *C]. Returns the first row's id.
        """
        n, first = len(mask), self.next_id
        slots = self.locate(first, n)
        self.num_transitions -= int(np.count_nonzero(self.links[slots, NEXT]))
        for name, matrix, columns, _, stack in self.layout.fields:
            value = obs[name] if stack == 1 else obs[name][:, -1]
            self.arrays[matrix][slots, columns] = value.reshape(n, -1)
        self.real[slots, self.layout.act_start :] = 0.0
        if self.discrete:
            self.byte[slots, : self.discrete] = mask
            self.byte[slots, self.discrete :] = 0
        if self.carry.shape[1]:
            self.carry[slots] = carry.reshape(n, -1)
        self.links[slots, PREV] = 1
        self.links[first % self.capacity, PREV] = back
        self.links[slots, NEXT] = 0
        self.links[slots, STEP] = np.arange(first_step, first_step + n)
        self.next_id += n
        return first

    def act(self, slots: Index, z: Float, logp: Float, reward: Float, onehot: Float) -> None:
        """Fill the acting half of n rows, each followed by the next id and without an end."""
        layout = self.layout
        self.real[slots, layout.z] = z
        self.real[slots, layout.logp] = logp
        self.real[slots, layout.reward] = reward
        if self.discrete:
            self.byte[slots, self.discrete :] = onehot
        self.links[slots, NEXT] = 1 << FLAG_BITS
        self.num_transitions += len(reward)

    def state_dict(self) -> tuple[dict[str, Array], dict[str, int]]:
        """Read-only views of the rows in use, and the counters."""
        arrays = {name: array[: len(self)] for name, array in self.arrays.items()}
        for view in arrays.values():
            view.flags.writeable = False
        return arrays, {"next_id": self.next_id, "num_transitions": self.num_transitions}

    def load_state_dict(self, arrays: dict[str, Array], counters: dict[str, int]) -> None:
        """Take over what ``state_dict`` gave; ValueError, and no change, if a column does not fit."""
        rows = min(counters["next_id"], self.capacity)
        if arrays.keys() != self.arrays.keys():
            raise ValueError(f"replay state: expected columns {sorted(self.arrays)}, got {sorted(arrays)}")
        for name, own in self.arrays.items():
            expected, given = (rows, own.shape[1]), arrays[name]
            if given.shape != expected or given.dtype != own.dtype:
                raise ValueError(
                    f"replay state, column {name}: expected {expected} {own.dtype}, "
                    f"got {given.shape} {given.dtype}"
                )
        self.links[rows : len(self)] = 0
        for name, own in self.arrays.items():
            own[:rows] = arrays[name]
        self.next_id, self.num_transitions = counters["next_id"], counters["num_transitions"]
