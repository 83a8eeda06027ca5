"""Memory of replays, computed before any is allocated, and its budget in one process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from algorithm.core.errors import UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR, AgentSpec
from algorithm.core.system.memory import free_memory
from algorithm.core.wording import format_bytes
from algorithm.replay.layout import Layout
from algorithm.replay.storage import MAX_CAPACITY
from algorithm.replay.sumtree import tree_bytes

SPARE = 0.1
"""Share of the free memory for networks, environments and the rest of the machine."""


class MemoryBudget:
    """Free memory for the replays of one process.

    It is measured once: the system allocates memory as rows are written, so a later measurement would not
    include the shares already reserved.
    """

    def __init__(self, free: int | None = None) -> None:
        """Set the free memory. free: bytes; None: as measured now."""
        self.free = free_memory() if free is None else free
        self._promised: dict[str, int] = {}

    @property
    def left(self) -> int:
        """Bytes left for a further replay."""
        return max(0, int(self.free * (1.0 - SPARE)) - sum(self._promised.values()))

    def reserve(
        self, behaviour: str, *, capacity: int, needed: int, largest_capacity: Callable[[int], int], key: str
    ) -> None:
        """Reserve ``needed`` bytes for the replay of ``behaviour``, which has ``capacity`` rows.

        key: configuration key that sets the capacity.
        largest_capacity: function from a number of bytes to the largest value of that key that fits, or 0.
        Raises UsageError, with the value that would fit, if they exceed :attr:`left`.
        """
        fitting = _rounded_down(largest_capacity(self.left))
        advice = f"set {key} to {fitting} or less" if fitting else "free some memory"
        whose = "" if behaviour == DEFAULT_BEHAVIOUR else f" of {behaviour}"
        self._reserve(behaviour, f"a replay of {capacity:,} rows needs", needed, f"{key}{whose}", advice)

    def reserve_demonstrations(self, behaviour: str, *, steps: int, needed: int) -> None:
        """Reserve ``needed`` bytes for the demonstrations of ``behaviour``.

        steps: number of their steps, for the error

        Raises UsageError if they exceed :attr:`left`.
        """
        what, advice = f"demonstrations of {steps:,} steps need", "set demonstrations.max_episodes"
        self._reserve(f"{behaviour}, demonstrations", what, needed, "demonstrations", advice)

    def _reserve(self, whose: str, what: str, needed: int, where: str, advice: str) -> None:
        if needed <= self.left:
            self._promised[whose] = needed
            return
        others = sum(self._promised.values())
        why = f"{SPARE:.0%} of the memory that was free at the start are reserved for everything else"
        if others:
            why += f", {format_bytes(others)} for the replays of {', '.join(self._promised)}"
        raise UsageError(
            f"{what} {format_bytes(needed)}, {format_bytes(max(0, self.free - others))} are free",
            where=where,
            why=why,
            fix=f"{advice}, or use a machine with more memory",
        )


def _rounded_down(n: int) -> int:
    """Return ``n`` rounded down to three digits: free memory is not measured more precisely."""
    unit = int(10 ** max(0, len(str(n)) - 3))
    return n // unit * unit


def replay_bytes(
    spec: AgentSpec, capacity: int, carry_shape: tuple[int, ...] = (), *, prioritised: bool
) -> int:
    """Return the bytes of a full replay of ``capacity`` rows, equal to its ``ReplayBuffer.nbytes``.

    carry_shape: of one stored carry; () or a shape with a 0 stores none.
    prioritised: a sum tree is kept, whose bytes per row depend on the capacity.
    """
    rows = Layout(spec, carry_shape).row_bytes * capacity
    return rows + tree_bytes(capacity) if prioritised else rows


def largest_capacity(
    spec: AgentSpec, nbytes: int, carry_shape: tuple[int, ...] = (), *, prioritised: bool
) -> int:
    """Return the rows of the largest replay that fits in ``nbytes``; 0 if that is less than two rows."""
    fitting = bisect_right(
        range(2, MAX_CAPACITY + 1),
        nbytes,
        key=lambda capacity: replay_bytes(spec, capacity, carry_shape, prioritised=prioritised),
    )
    return fitting + 1 if fitting else 0
