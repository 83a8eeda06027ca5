"""Disks that are really full: a small file system of its own, or a limit on the length of files."""

from __future__ import annotations

import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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


@contextmanager
def files_no_larger_than(nbytes: int) -> Iterator[None]:
    """The system takes a part of what goes beyond, then none, and says so: as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
