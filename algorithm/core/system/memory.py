"""Free memory of this process: of the machine, and of its control groups on Linux."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


class _GroupFiles(NamedTuple):
    """File names of one version of control groups."""

    limit: str
    used: str
    reclaimable: str  # entry of memory.stat: file cache that counts as used and gives way when needed


_V1 = _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _GroupFiles("memory.max", "memory.current", "inactive_file")


def free_memory(groups: Path = _GROUPS, membership: Path = _MEMBERSHIP) -> int:
    """Return the bytes left to this process: free in the machine, and allowed by each control group.

    groups, membership: Linux's folder of the groups, and its list of this process's; absent elsewhere.
    """
    available: int = psutil.virtual_memory().available
    allowed = [_allowed(folder, files) for folder, files in _memory_groups(groups, membership)]
    return min([available, *(n for n in allowed if n is not None)])


def _memory_groups(groups: Path, membership: Path) -> Iterator[tuple[Path, _GroupFiles]]:
    """Yield the folders of all groups whose limit holds for this process, and the names of their files."""
    try:
        lines = membership.read_text("utf-8").splitlines()
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
