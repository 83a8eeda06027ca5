"""Bytes of a replay, and the largest replay in a number of bytes, without allocation."""

from __future__ import annotations

from bisect import bisect_right

from algorithm.core.spec import AgentSpec
from algorithm.replay.layout import Layout
from algorithm.replay.storage import MAX_CAPACITY
from algorithm.replay.sumtree import tree_bytes


def replay_bytes(
    spec: AgentSpec, capacity: int, carry_shape: tuple[int, ...] = (), *, prioritised: bool
) -> int:
    """Return the bytes of a full replay of ``capacity`` rows, equal to its ``ReplayBuffer.nbytes``.

    carry_shape: of one stored carry; () or a shape with a 0 stores none.
    prioritised: a sum tree is kept, whose share of each row depends on the capacity.
    """
    rows = Layout(spec, carry_shape).row_bytes * capacity
    return rows + tree_bytes(capacity) if prioritised else rows


def largest_capacity(
    spec: AgentSpec, nbytes: int, carry_shape: tuple[int, ...] = (), *, prioritised: bool
) -> int:
    """Return the rows of the largest replay in ``nbytes``; 0 for fewer than the necessary two."""
    fitting = bisect_right(
        range(2, MAX_CAPACITY + 1),
        nbytes,
        key=lambda capacity: replay_bytes(spec, capacity, carry_shape, prioritised=prioritised),
    )
    return fitting + 1 if fitting else 0
