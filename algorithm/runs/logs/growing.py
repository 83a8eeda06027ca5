"""A file that grows by whole records, whatever happens to the disk. Imports neither torch nor numpy."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class GrowingFile:
    """A file of which only the end is ever written, a whole record at a time.

    It is opened for each record, so that a failure leaves nothing open and nothing buffered, and what a
    kill leaves behind is at most one torn record at the end.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._torn_at: int | None = None

    def append(self, record: bytes) -> None:
        """Write ``record`` behind the others; the operating system has it then.

        Raises OSError. What had been written of the record is cut off again by the next call.
        """
        with open(_appending(self.path), "ab", buffering=0) as file:
            if self._torn_at is not None:
                file.truncate(self._torn_at)
            self._torn_at = file.seek(0, os.SEEK_END)
            rest = memoryview(record)
            while rest:  # a disk that is almost full takes a part of it, and the error comes with the next
                rest = rest[file.write(rest) :]
        self._torn_at = None

    def sync(self) -> None:
        """Make everything appended survive a power cut. Raises OSError."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())


def _appending(path: Path) -> int:
    """A handle of a plain file, made if need be, that is written to at its end. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # a pipe would be waited for, a device take anything
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no plain file")
    return handle
