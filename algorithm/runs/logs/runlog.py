"""The file that a run's log goes to, on a disk that may become full. Imports neither torch nor numpy."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from typing_extensions import override

from algorithm.core.errors import StorageError, visible
from algorithm.runs.files import GrowingFile


class RunLog(logging.Handler):
    """A handler that appends whole lines to a file, and counts the lines that could not be written.

    warn: called once, when the first line is left out
    Raises OSError if the file cannot be written to begin with.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = GrowingFile(path)
        self._file.append(b"\n" if path.exists() else b"")  # a kill may have torn the last line
        self._left_out = 0
        self.warn: Callable[[str], None] = _to_stderr

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Write one record. A record that cannot be formatted is treated as logging does."""
        try:
            text = self.format(record)
        except Exception:  # whatever a library's own arguments may do; its traceback goes to the screen
            self.handleError(record)
            return
        gap = f"(lines that could not be written here: {self._left_out})\n" if self._left_out else ""
        try:
            self._file.append(f"{gap}{visible(text)}\n".encode())
        except OSError as error:
            self._left_out += 1
            if self._left_out == 1:  # counted before: a warning may be logged as well
                why = StorageError.of(error, what="the log cannot be written", where=self._file.path)
                self.warn(f"{why.line} · training goes on")
        else:
            self._left_out = 0


def _to_stderr(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)
