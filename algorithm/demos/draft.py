"""A file that appears at the end, complete."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import BinaryIO

from algorithm.core.system.files import replace


class Draft:
    """File that has another name until it is complete, and then replaces one of its own name.

    Every method may raise OSError but :meth:`discard`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._stream: BinaryIO | None = None

    def open(self) -> BinaryIO:
        """Return it, empty."""
        if self.path.is_dir():
            raise IsADirectoryError("it is a folder")
        self._stream = self._draft.open("wb")
        return self._stream

    def finish(self) -> None:
        """Close it and give it its name."""
        assert self._stream is not None, "open comes first"
        self._stream.close()
        replace(self._draft, self.path)
        self._stream = None

    def discard(self) -> None:
        """Remove it."""
        stream, self._stream = self._stream, None
        with contextlib.suppress(OSError):  # the disk may be full
            if stream is not None:
                stream.close()
        with contextlib.suppress(OSError):
            self._draft.unlink()
