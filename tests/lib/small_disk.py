"""Disks that are really full: a small file system of its own, or a limit on the length of files."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER of sched.h
_NO_DISK = 77


def child(act: Callable[[], object]) -> int:
    """Run ``act`` in a process of its own, forked from here; returns as :func:`os.waitpid` does."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def on_a_small_disk(folder: Path, nbytes: int, act: Callable[[], object]) -> bool:
    """Run ``act`` in a process in which ``folder`` is a file system of ``nbytes``; it goes with the process.

    False: this machine lets nobody mount one. Raises AssertionError if ``act`` failed.
    """

    def mounted() -> None:
        if not _mount(folder, nbytes):
            os._exit(_NO_DISK)
        act()

    code = os.waitstatus_to_exitcode(child(mounted))
    assert code in (0, _NO_DISK), "it failed, see what it printed"
    return code == 0


def fill(file: Path, leave: int) -> None:
    """Take all the room of a file system but ``leave`` bytes."""
    room = os.statvfs(file.parent)
    file.write_bytes(bytes(max(0, room.f_bavail * room.f_frsize - leave)))


@contextmanager
def files_no_larger_than(nbytes: int) -> Iterator[None]:
    """The system takes a part of what goes beyond, then none, and says so: as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _mount(folder: Path, nbytes: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    owner = os.getuid(), os.getgid()
    if libc.unshare(_NEW_MOUNTS) and not _as_root_of_its_own(libc, *owner):
        return False
    libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None)  # private: nobody else sees it
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={nbytes}".encode()):
        print(f"tmpfs: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return False
    return True


def _as_root_of_its_own(libc: ctypes.CDLL, uid: int, gid: int) -> bool:
    if libc.unshare(_NEW_USER | _NEW_MOUNTS):
        return False
    proc = Path("/proc/self")
    (proc / "setgroups").write_text("deny")
    (proc / "uid_map").write_text(f"0 {uid} 1")
    (proc / "gid_map").write_text(f"0 {gid} 1")
    return True
