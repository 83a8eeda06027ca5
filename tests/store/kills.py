"""Processes that die, or whose disk fails, between any two changes of the disk or in the middle of one."""

import errno
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from algorithm.store import files
from algorithm.store.checkpoints import segments
from tests.lib.small_disk import child

CALLS = tuple(
    [(os, name) for name in ("unlink", "rmdir")]
    + [(Path, name) for name in ("rename", "replace", "mkdir", "open")]
)
_UNHURT = 9
WRITES = ((files, "put"), (segments, "put"))


def deaths(act: Callable[[], object], prepare: Callable[[], object]) -> Iterator[int]:
    """Let ``act`` die by SIGKILL at every change of the disk in turn, each time after ``prepare``.

    It dies before the change, or half-way through if that is a write. Yields which it was, for the disk to
    be looked at; the last time ``act`` gets through.
    """
    return _each(act, prepare, lambda: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL)


def failures(
    act: Callable[[], object], prepare: Callable[[], object], then: Callable[[], object]
) -> Iterator[int]:
    """The same, but that change fails as on a full disk. ``act`` copes with it; ``then`` has all the room."""

    def strike() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return _each(act, prepare, strike, 0, then)


def _each(
    act: Callable[[], object],
    prepare: Callable[[], object],
    strike: Callable[[], None],
    struck: int,
    then: Callable[[], object] = lambda: None,
) -> Iterator[int]:
    for fatal in range(1, 500):
        prepare()
        code = os.waitstatus_to_exitcode(child(lambda fatal=fatal: _run_armed(act, fatal, strike, then)))
        assert code in (struck, _UNHURT), "it failed, see what it printed"
        yield fatal
        if code == _UNHURT:
            return
    raise AssertionError("there is no end of changes of the disk")


def _run_armed(
    act: Callable[[], object], fatal: int, strike: Callable[[], None], then: Callable[[], object]
) -> None:
    trap = _Trap(fatal, strike)
    for where, name in CALLS:
        setattr(where, name, trap.counted(getattr(where, name)))
    os.fsync = trap.counted(lambda handle: None)  # only the process dies here, the machine does not
    for where, name in WRITES:
        setattr(where, name, trap.torn(getattr(where, name)))
    act()
    unhurt = trap.disarm()
    then()
    if unhurt:
        os._exit(_UNHURT)


class _Trap:
    """Strikes at the change of the disk with the number ``fatal``, from 1."""

    def __init__(self, fatal: int, strike: Callable[[], None]) -> None:
        self._left, self._strike = fatal, strike

    def counted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The call, after a strike if it is the fatal one."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._is_fatal():
                self._strike()
            return original(*args, **kwargs)

        return call

    def torn(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The write, with a strike half-way through if it is the fatal one."""

        def put(file: Any, data: Any) -> None:
            if self._is_fatal():
                file.write(data[: len(data) // 2])
                file.flush()
                self._strike()
            original(file, data)

        return put

    def disarm(self) -> bool:
        """Let every further change be; returns whether there has been no strike."""
        unhurt, self._left = self._left > 0, 0
        return unhurt

    def _is_fatal(self) -> bool:
        self._left -= 1
        return self._left == 0
