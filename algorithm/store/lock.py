"""The lock of a run: a kernel lock admits one process at a time, and ``run.lock`` names that process.

The kernel releases its lock when the process ends, however it ends. ``run.lock`` is JSON for people, reports
and other machines. Where a shared disk does not carry kernel locks between machines, it is the only evidence.
"""

from __future__ import annotations

import contextlib
import errno
import json
import shlex
import socket
import types
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import psutil
from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from algorithm.core.errors import StorageError, UsageError
from algorithm.core.reading import parse_json, read_bytes
from algorithm.core.system.files import remove_held
from algorithm.store.files import write_bytes

_SAME_START_S = 2.0
"""Tolerance in seconds of a process's start: the system counts whole seconds."""

_LAST_DAY = 2.0**33  # seconds since 1970, which every system can show

_WAIT_S = 0.3
"""Seconds for forks of a killed process to close their copies of the kernel lock."""

_NO_KERNEL_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL})
"""Errors of ``flock`` on file systems that do not support it."""

_LONGEST = 4 * 2**20  # bytes of run.lock; a command may be as long as the system allows


class Holder(BaseModel):
    """The process that ``run.lock`` names. started: seconds since 1970."""

    model_config = ConfigDict(strict=True, frozen=True)

    pid: Annotated[int, Field(gt=0, lt=2**31)]
    host: str
    started: Annotated[float, Field(ge=0, lt=_LAST_DAY)]
    command: str

    @classmethod
    def me(cls) -> Holder:
        """Describe the calling process."""
        process = psutil.Process()
        return cls(
            pid=process.pid,
            host=socket.gethostname(),
            started=process.create_time(),
            command=shlex.join(process.cmdline()),
        )

    @classmethod
    def read(cls, text: str | bytes) -> Holder | None:
        """Parse the content of ``run.lock``, see :attr:`text`; None for any other text."""
        try:
            return cls.model_validate(parse_json(text))
        except ValueError:
            return None

    @property
    def text(self) -> str:
        """The content of ``run.lock``: the fields as a JSON object on one line."""
        return json.dumps(self.model_dump()) + "\n"

    @property
    def is_elsewhere(self) -> bool:
        """Whether the process is of another machine, where its state cannot be read."""
        return self.host != socket.gethostname()

    @property
    def is_running(self) -> bool:
        """Whether the process still runs; true if that is unknown.

        Another process may have got its number since, but has another start time.
        """
        if self.is_elsewhere:
            return True
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:  # ended, but not yet reaped by its parent
                return False
            return bool(abs(process.create_time() - self.started) <= _SAME_START_S)
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True

    @property
    def since(self) -> str:
        """Start time as text, in local time."""
        return datetime.fromtimestamp(self.started).strftime("%Y-%m-%d %H:%M:%S")

    @override
    def __str__(self) -> str:
        """Return the process on one printable line."""
        text = f"process {self.pid} on {self.host}, since {self.since}: {self.command}"
        return "".join(sign if sign.isprintable() else "?" for sign in text)


class RunLock:
    """Exclusive access to a run while the context is open.

    ``run.lock`` of a process that has ended is stale: it is replaced, with one notice. So is one that cannot
    be parsed. One of another machine counts as held, because its process cannot be checked from here.

    path:   ``run.lock``; the kernel lock is a file beside it, see :func:`lock_files`
    notice: called with a message when a stale lock is replaced
    Entering raises UsageError with the process that holds the run, and StorageError if the lock cannot be
    written.
    """

    def __init__(self, path: Path, *, notice: Callable[[str], None]) -> None:
        self._path = path
        self._notice = notice
        self._text = ""
        self._folder = -1
        self._lock: BaseFileLock | None = None

    def __enter__(self) -> RunLock:
        self._text = Holder.me().text
        try:
            self._folder = self._path.parent.stat().st_ino
            self._lock = _acquire(self._path)
            stale = self._take(self._lock)
        except Timeout:
            holder = holder_of(self._path)
            _, _, marker = lock_files(self._path)  # stays behind a process that was killed; a kernel lock not
            left = [file for file in (self._path, marker) if file.exists()] if marker.exists() else []
            raise _refusal(self._path, holder, left) from None
        except OSError as error:
            raise StorageError.of(error, what="the run cannot be locked", where=self._path) from error
        except ValueError as error:
            raise StorageError(
                "the run cannot be locked",
                where=self._path,
                why=f"{error}: no process has created it",
                fix="check it, and move it away",
            ) from error
        if stale is not None:
            whose = Holder.read(stale)
            who = f"it belonged to {whose}" if whose else "it cannot be read"
            self._notice(f"the run did not end properly, taking over its lock; {who}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock. May be called twice, and from any thread."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            if _read(self._path) == self._text:  # else another folder stands there, with locks of its own
                for file in lock_files(self._path):
                    remove_held(file)
        except (OSError, ValueError) as failure:  # the run itself has ended well; who comes next finds it
            self._notice(f"{self._path} cannot be removed: {failure}")
        finally:
            lock.release()

    def check(self) -> None:
        """Raise StorageError if the folder was moved or replaced, or locked by another process."""
        folder = self._path.parent
        try:
            text = _read(self._path)
            if text == self._text:  # the folder's inode is not compared: some network file systems change it
                return
            if text is None and folder.stat().st_ino == self._folder:  # only run.lock was removed
                return
            why = "another folder is in its place" if text is None else "another process has taken it"
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
        raise StorageError(
            "the run's folder no longer exists",
            where=folder,
            why=f"{why}: it was moved or removed during the run",
            fix="move it back and resume it; nothing more was written to it",
        )

    def _take(self, lock: BaseFileLock) -> str | None:
        """Write ``run.lock`` while ``lock`` is held; return the stale text that it replaces.

        Raises UsageError if the process that it named still runs: a kernel lock may not be visible on other
        machines, and its file may have been removed.
        """
        try:
            text = _read(self._path)
            holder = Holder.read(text or "")
            mine = text == self._text  # of a run of this process that could not remove it, and has ended
            if holder is not None and not mine and holder.is_running:
                raise _refusal(self._path, holder, [self._path])
            write_bytes(self._path, self._text.encode())
        except BaseException:
            with contextlib.suppress(OSError):  # while it is held, so that waiting processes retry
                remove_held(Path(lock.lock_file))
            lock.release()
            raise
        return text


def lock_files(path: Path) -> tuple[Path, Path, Path]:
    """Return ``run.lock``, the file of the kernel lock, and the marker where there are no such locks."""
    return path, path.with_suffix(".flock"), path.with_suffix(".softlock")


def _acquire(path: Path) -> BaseFileLock:
    """Acquire the kernel lock, and return it; on a file system without such locks, that of a marker file.

    Raises Timeout if it is still held after 0.3 s, and OSError if its file cannot be written.
    """
    _, kernel, marker = lock_files(path)
    # The lock is shared by all threads: the watchdog releases it when the main thread hangs.
    lock: BaseFileLock = FileLock(kernel, timeout=_WAIT_S, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except OSError as error:
        if error.errno not in _NO_KERNEL_LOCKS:  # Timeout has no number
            raise
        kernel.unlink(missing_ok=True)
        lock = SoftFileLock(marker, timeout=_WAIT_S, thread_local=False)
        lock.acquire()
    return lock


def _read(path: Path) -> str | None:
    """Return the content of ``run.lock``; None if it is missing."""
    with contextlib.suppress(FileNotFoundError):
        return read_bytes(path, _LONGEST).decode("utf-8", "replace")
    return None


def holder_of(path: Path) -> Holder | None:
    """Return the process that a ``run.lock`` names; None if it has ended, or there is none."""
    holder = None
    with contextlib.suppress(OSError, ValueError):
        holder = Holder.read(_read(path) or "")
    return holder if holder is not None and holder.is_running else None


def _refusal(path: Path, holder: Holder | None, left: Sequence[Path]) -> UsageError:
    """Return the error for a run that is locked. left: files that a dead process may have left behind."""
    if holder and not holder.is_elsewhere:
        fix = f"wait for it, or end it:\nkill {holder.pid}"
    else:
        fix = "wait for it or end it there" if holder else "wait for it: its lock ends with it"
        if left:
            fix += f"; if it and all that it started are gone:\n{shlex.join(['rm', *map(str, left)])}"
    return UsageError(
        "another process is using this run",
        where=path,
        why=str(holder) if holder else "it is not named there",
        fix=f"{fix}\nor train another run with -n",
    )
