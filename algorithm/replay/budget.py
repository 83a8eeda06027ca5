"""Free memory, and its division among the replays of a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from algorithm.errors import UsageError
from algorithm.spec import DEFAULT_BEHAVIOUR

SPARE = 0.1
"""Share of the free memory for networks, environments and the rest of the machine."""

_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


class _GroupFiles(NamedTuple):
    """File names of one version of control groups."""

    limit: str
    used: str
    reclaimable: str  # entry of memory.stat: file cache that counts as used and gives way when needed


_V1 = _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _GroupFiles("memory.max", "memory.current", "inactive_file")


class MemoryBudget:
    """Free memory for the replays of one process.

    It is measured once: the system allocates memory as rows are written, so a later measurement would not
    include the shares already reserved.
    """

    def __init__(self, free: int | None = None) -> None:
        """Set the free memory. free: bytes; None measures."""
        self.free = free_memory() if free is None else free
        self._promised: dict[str, int] = {}

    @property
    def left(self) -> int:
        """Bytes left for a further replay."""
        return max(0, int(self.free * (1.0 - SPARE)) - sum(self._promised.values()))

    def reserve(
        self,
        behaviour: str,
        *,
        capacity: int,
        needed: int,
        largest_capacity: Callable[[int], int],
        key: str = "replay_config.capacity",
    ) -> None:
        """Reserve ``needed`` bytes for the replay of ``behaviour``, which has ``capacity`` rows.

        key: of the configuration, that decides the capacity.
        largest_capacity: the largest value of that key in a number of bytes, 0 for none.
        Raises UsageError, with the value that would fit, if they exceed :attr:`left`.
        """
        left = self.left
        if needed <= left:
            self._promised[behaviour] = needed
            return
        others = sum(self._promised.values())
        why = f"{SPARE:.0%} of the memory that was free at the start are kept for everything else"
        if others:
            why += f", {format_bytes(others)} for the replays of {', '.join(self._promised)}"
        fitting = _rounded_down(largest_capacity(left))
        fix = f"set {key} to {fitting} or less" if fitting else "free some memory"
        whose = "" if behaviour == DEFAULT_BEHAVIOUR else f" of {behaviour}"
        raise UsageError(
            f"a replay of {capacity:,} rows needs {format_bytes(needed)}, "
            f"{format_bytes(max(0, self.free - others))} are free",
            where=f"{key}{whose}",
            why=why,
            fix=f"{fix}, or use a machine with more memory",
        )

    def reserve_demonstrations(self, behaviour: str, *, steps: int, needed: int) -> None:
        """Reserve ``needed`` bytes for the demonstrations of ``behaviour``, which have so many steps.

        Raises UsageError if they exceed :attr:`left`.
        """
        left = self.left
        if needed > left:
            raise UsageError(
                f"demonstrations of {steps:,} steps need {format_bytes(needed)}, "
                f"{format_bytes(left)} are free",
                where="demonstrations",
                why=f"{SPARE:.0%} of the memory that was free at the start are kept for everything else, the "
                "replays have their share",
                fix="set demonstrations.max_episodes, or use a machine with more memory",
            )
        self._promised[f"{behaviour}, demonstrations"] = needed


def free_memory(groups: Path = _GROUPS, membership: Path = _MEMBERSHIP) -> int:
    """Return the bytes left to this process: free in the machine, and allowed by each control group.

    groups, membership: Linux's folder of the groups, and its list of this process's; absent elsewhere.
    """
    available: int = psutil.virtual_memory().available
    allowed = [_allowed(folder, files) for folder, files in _memory_groups(groups, membership)]
    return min([available, *(n for n in allowed if n is not None)])


def format_bytes(n: int) -> str:
    """Return ``28.3 GB`` or ``512 MB``, powers of 1024 as everywhere in this project's output."""
    return f"{n / 2**30:,.1f} GB" if n >= 2**30 else f"{n / 2**20:,.0f} MB"


def _memory_groups(groups: Path, membership: Path) -> Iterator[tuple[Path, _GroupFiles]]:
    """Yield the folders of all groups whose limit holds for this process, and the names of their files."""
    try:
        lines = membership.read_text().splitlines()
    except FileNotFoundError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, files = groups, _V2
        elif "memory" in controllers.split(","):
            root, files = groups / "memory", _V1
        else:
            continue
        # Inside a container this may be a path of the host, which is not mounted; its root always is.
        parts = Path(path).parts[1:]
        for depth in range(len(parts) + 1):
            yield root.joinpath(*parts[:depth]), files


def _allowed(folder: Path, files: _GroupFiles) -> int | None:
    """Return the bytes left to a group; None if it sets no limit."""
    try:
        limit = (folder / files.limit).read_text().strip()
        used = int((folder / files.used).read_text())
        stat = (folder / "memory.stat").read_text()
    except OSError:  # no such group here, or the root of version 2, which has no limit
        return None
    if limit == "max":
        return None
    entries = dict(line.split() for line in stat.splitlines())
    return max(0, int(limit) - used + int(entries[files.reclaimable]))


def _rounded_down(n: int) -> int:
    """Return the first three digits of ``n``: free memory is not measured more precisely."""
    unit = int(10 ** max(0, len(str(n)) - 3))
    return n // unit * unit
