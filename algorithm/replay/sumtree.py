"""Float64 sum tree with a wide fan-out, vectorised over the batch.

A binary tree needs log2(capacity) dependent passes of small numpy calls. Here a node has 32 or 8 children:
half a million leaves need two levels, and one running sum over the two thousand nodes on top. The prefix
sums inside all visited nodes are one small matrix product.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from algorithm.core.data import Array, Double, Int

LEAF_FAN_OUT = 32  # wide where the memory is: inner sums then cost a quarter of a byte per leaf
INNER_FAN_OUT = 8
MAX_TOP = 2048  # a running sum over this many nodes is cheaper than one more level
MAX_PENDING = 1024  # stored updates after which the inner sums are computed anyway


def tree_bytes(capacity: int) -> int:
    """Return the bytes of a tree of ``capacity`` leaves, without building it."""
    return np.dtype(np.float64).itemsize * sum(prod(shape) for shape in _shapes(capacity))


class SumTree:
    """Leaves ≥ 0 with O(1) update and sampling in proportion to their value.

    Inner sums are recomputed from their children, never adjusted by differences, so they do not drift: they
    depend on the leaves alone, not on the history. They are updated at the next read.
    """

    def __init__(self, capacity: int) -> None:
        """Create an all-zero tree of ``capacity`` ≥ 1 leaves; memory is touched as leaves are written."""
        self.capacity = capacity
        *levels, top = _shapes(capacity)
        # Leaves first; each [nodes, fan-out], padded with zeros.
        self._levels: list[Double] = [np.zeros(shape) for shape in levels]
        self._top: Double = np.zeros(top)
        # flat[i] are the values of level i, flat[i + 1] the sums of its nodes.
        self._flat = [level.reshape(-1) for level in self._levels] + [self._top]
        self._prefix = [np.tri(level.shape[1] - 1, level.shape[1]) for level in self._levels]
        self._pending: list[Int] = []

    @property
    def leaves(self) -> Double:
        """Read-only view of all leaves, [capacity]."""
        view = self._flat[0][: self.capacity]
        view.flags.writeable = False
        return view

    @property
    def total(self) -> float:
        """Sum of all leaves."""
        self._refresh()
        return float(self._top.sum())

    @property
    def nbytes(self) -> int:
        """Bytes reserved for leaves and inner sums."""
        return sum(level.nbytes for level in self._flat)

    def update(self, leaves: Int, values: Double) -> None:
        """Set leaves [n] to values [n]; where a leaf is named twice the last value wins.

        ``leaves`` is kept until the sums are next read and must not be written to. Raises ValueError for a
        negative or non-finite value, and then changes nothing.
        """
        if not leaves.size:
            return
        self._flat[0][leaves] = _checked(values)
        self._pending.append(leaves)
        if len(self._pending) >= MAX_PENDING:
            self._refresh()

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Int, Double]:
        """Draw ``n`` leaves in strata: the i-th lies in the i-th of n equal shares of the total.

        Returns leaves [n] and their values [n], each > 0. Raises ValueError if the total is 0.
        """
        self._refresh()
        running = self._top.cumsum()
        share = running[-1] / n
        if running[-1] <= 0.0:
            raise ValueError("SumTree: cannot sample, every leaf is 0")
        leaves = self._find((np.arange(n) + rng.random(n)) * share, running)
        values = self._flat[0].take(leaves)
        # At the edge between two leaves rounding can select an empty neighbour: draw those again.
        while not values.all():
            empty = np.flatnonzero(values == 0.0)
            leaves[empty] = self._find((empty + rng.random(empty.size)) * share, running)
            values = self._flat[0].take(leaves)
        return leaves, values

    def load(self, chunks: Iterable[tuple[slice | Int, Array]]) -> None:
        """Replace all leaves: those that ``chunks`` name (leaves [n], values [n]) by its values, others by 0.

        Raises ValueError as :meth:`update` does; the tree is then unusable.
        """
        self._pending.clear()
        leaves = self._flat[0]
        leaves[np.flatnonzero(leaves)] = 0.0  # memory that was never touched stays so
        for place, values in chunks:
            leaves[place] = _checked(values.astype(np.float64, copy=False))
        for level, sums in zip(self._levels, self._flat[1:], strict=True):
            sums[: len(level)] = np.add.reduce(level, axis=1)

    def _find(self, mass: Double, running: Double) -> Int:
        """Return the leaf of each point of ``mass`` [n] of the running sum; overwrites ``mass``."""
        # Leaving out the last entry keeps a mass rounded up to the total inside the tree.
        node: Int = running[:-1].searchsorted(mass, "right")
        mass -= running.take(node)
        mass += self._top.take(node)
        column = np.arange(mass.size)
        for depth in range(len(self._levels) - 1, -1, -1):
            level, prefix = self._levels[depth], self._prefix[depth]
            # [fan-out − 1, n]: sums up to and including each child but the last
            sums = prefix @ level.take(node, axis=0).T
            child = np.add.reduce((sums <= mass).view(np.int8), axis=0, dtype=np.int8)
            node *= level.shape[1]
            node += child
            if depth:
                before = np.maximum(child - np.intp(1), 0) * mass.size + column
                mass -= sums.reshape(-1).take(before) * (child > 0)
        return node

    def _refresh(self) -> None:
        """Recompute the sums above every leaf updated since the last call."""
        if not self._pending:
            return
        node = self._pending[0] if len(self._pending) == 1 else np.concatenate(self._pending)
        self._pending.clear()
        for level, sums in zip(self._levels, self._flat[1:], strict=True):
            node = node // level.shape[1]
            # Not a matrix product: this sum has the same bits whichever nodes are summed beside it.
            sums[node] = np.add.reduce(level.take(node, axis=0), axis=1)


def _checked(values: Double) -> Double:
    if not (np.minimum.reduce(values) >= 0.0 and np.maximum.reduce(values) < np.inf):
        raise ValueError("SumTree: values must be finite and not negative")
    return values


def _shapes(capacity: int) -> list[tuple[int, ...]]:
    """Return the shapes of a tree's levels: (nodes, fan-out) from the leaves up, (nodes,) of the top.

    The top has at most :data:`MAX_TOP` nodes.
    """
    shapes: list[tuple[int, ...]] = []
    count, width = capacity, LEAF_FAN_OUT
    while count > MAX_TOP:
        nodes = -(-count // width)
        shapes.append((nodes, width))
        count, width = nodes, INNER_FAN_OUT
    return [*shapes, (count,)]
