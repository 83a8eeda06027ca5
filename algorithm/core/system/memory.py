"""Free memory of this process: of the machine, and of its control groups (version 2) on Linux."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def free_memory(groups: Path = _GROUPS, membership: Path = _MEMBERSHIP) -> int:
    """Return the bytes left to this process: free in the machine, and allowed by each control group.

    groups, membership: Linux's folder of the groups, and its list of this process's; absent elsewhere.
    """
    available: int = psutil.virtual_memory().available
    allowed = map(_allowed, _memory_groups(groups, membership))
    return min([available, *(n for n in allowed if n is not None)])


def _memory_groups(groups: Path, membership: Path) -> Iterator[Path]:
    """Yield the folders of all groups whose limit holds for this process."""
    try:
        lines = membership.read_text("utf-8").splitlines()
    except FileNotFoundError:  # not Linux
        return
    for line in lines:
        if line.startswith("0::"):
            # Inside a container this may be a path of the host, which is not mounted; its root always is.
            parts = Path(line.removeprefix("0::")).parts[1:]
            yield from (groups.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))


def _allowed(folder: Path) -> int | None:
    """Return the bytes left to a group; None if it sets no limit."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        stat = (folder / "memory.stat").read_text()
    except OSError:  # no such group here, or the root, which has no limit
        return None
    if limit == "max":
        return None
    # File cache counts as used and gives way when needed.
    entries = dict(line.split() for line in stat.splitlines())
    return max(0, int(limit) - used + int(entries["inactive_file"]))
