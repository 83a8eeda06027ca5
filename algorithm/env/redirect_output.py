"""Keeps what a simulator's compiled part prints out of the terminal."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_STREAMS = (1, 2)  # standard output and error, as file descriptors: C code knows no sys.stdout


@contextmanager
def silence() -> Iterator[None]:
    """Send standard output and error nowhere until the block is left, also those of C and C++ code.

    An exception passes as ever; only what is printed is lost.
    """
    with Path(os.devnull).open("wb") as nowhere, redirected(nowhere):
        yield


@contextmanager
def redirected(target: IO[bytes]) -> Iterator[None]:
    """Send standard output and error to ``target`` until the block is left."""
    _flush()
    saved = [os.dup(stream) for stream in _STREAMS]
    try:
        for stream in _STREAMS:
            os.dup2(target.fileno(), stream)
        yield
    finally:
        _flush()  # while it is still redirected: C keeps lines in a buffer of its own
        for stream, copy in zip(_STREAMS, saved, strict=True):
            os.dup2(copy, stream)
            os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    with suppress(OSError, AttributeError, TypeError):  # no such library on this system: nothing to flush
        ctypes.CDLL(None).fflush(None)
