"""Redirection of standard output and error at the level of file descriptors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from algorithm.core.system.processes import flush_c_streams

_STREAMS = (1, 2)  # file descriptors of output and error: C code bypasses sys.stdout


@contextmanager
def silence() -> Iterator[None]:
    """Discard standard output and error inside the block, also those of C and C++ code."""
    with Path(os.devnull).open("wb") as nowhere, redirected(nowhere):
        yield


@contextmanager
def redirected(target: IO[bytes]) -> Iterator[None]:
    """Send standard output and error to ``target`` inside the block."""
    _flush()
    saved = [os.dup(stream) for stream in _STREAMS]
    try:
        for stream in _STREAMS:
            os.dup2(target.fileno(), stream)
        yield
    finally:
        _flush()  # before it is restored: C buffers lines itself
        for stream, original in zip(_STREAMS, saved, strict=True):
            os.dup2(original, stream)
            os.close(original)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    flush_c_streams()
