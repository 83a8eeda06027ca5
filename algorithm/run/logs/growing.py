"""A file that grows by whole records, whatever happens to the disk. Imports neither torch nor numpy."""

from __future__ import annotations

import os
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
        with self.path.open("ab", buffering=0) as file:
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
