"""Standard output and error: safe when closed, on a full disk or without a reader; redirected, discarded."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TextIO, cast

_LOGGER = logging.getLogger(__name__)


class SafeOutput:
    """Standard output or error without write errors: after the first one, output is discarded."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """Write ``text``; return its length."""
        try:
            return self._file.write(text)
        except OSError as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Flush the output."""
        try:
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Flush the output only: an environment may close it while others still write."""
        self.flush()

    def _give_up(self, error: OSError) -> None:
        """Discard all further output, and log the reason. Without a free descriptor, do nothing."""
        try:
            with Path(os.devnull).open("wb") as nowhere:  # first, for what follows may be written here
                os.dup2(nowhere.fileno(), self._file.fileno())
        except OSError:  # no descriptor is left; the next write tries again
            return
        what = f"the output cannot be written any more ({error.strerror})"
        if isinstance(error, BrokenPipeError):
            what = "the reader of the output has exited"
        _LOGGER.warning("%s; the run continues, its log is train.log", what)


def make_output_safe() -> None:
    """Replace standard output and error by ones that never fail. Call it once, before anything else.

    A letter outside of their encoding is shown by its code. A closed descriptor would be reused for the next
    opened file, such as a checkpoint, and libraries would then print into it.
    """
    while (free := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(free, True)
    os.close(free)
    sys.stdout = _safe(sys.stdout, 1)
    sys.stderr = _safe(sys.stderr, 2)


def _safe(file: TextIO | None, descriptor: int) -> TextIO:
    """Return an output that never fails, for an open or closed descriptor."""
    if file is None:  # as Python finds it closed
        file = open(descriptor, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    reconfigure = getattr(file, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    return cast(TextIO, SafeOutput(file))


_DESCRIPTORS = (1, 2)  # of output and error: C code bypasses sys.stdout


@contextmanager
def silence() -> Iterator[None]:
    """Discard standard output and error inside the block, also those of C and C++ code."""
    with Path(os.devnull).open("wb") as nowhere, redirected(nowhere):
        yield


@contextmanager
def redirected(target: IO[bytes], descriptors: Sequence[int] = _DESCRIPTORS) -> Iterator[None]:
    """Send standard output and error, or only the given descriptors, to ``target`` inside the block."""
    _flush()
    saved = [os.dup(descriptor) for descriptor in descriptors]
    try:
        for descriptor in descriptors:
            os.dup2(target.fileno(), descriptor)
        yield
    finally:
        _flush()  # before it is restored: C buffers lines itself
        for descriptor, original in zip(descriptors, saved, strict=True):
            os.dup2(original, descriptor)
            os.close(original)


def _flush() -> None:
    """Flush the output of Python and of the C library."""
    for file in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # none, a program's own object, a closed one
            file.flush()
    library = "ucrtbase" if sys.platform == "win32" else None
    with suppress(OSError, AttributeError):  # no C library to flush
        ctypes.CDLL(library).fflush(None)
