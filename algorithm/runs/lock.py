"""One process at a time goes on with a run: the file ``run.lock`` in its folder."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shlex
import socket
import time
import types
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import psutil

from algorithm.errors import StorageError, UsageError
from algorithm.reading import parse_json, read_bytes
from algorithm.runs.files import write_durably

_SAME_START_S = 2.0
"""The system counts the seconds since its start in whole ones, and a clock may be corrected a little."""

_HALF_WRITTEN_S = 0.2
"""After so long a lock that makes no sense is not being written any more."""

_ATTEMPTS = 100

_LONGEST = 4 * 2**20  # bytes of a lock; a command may be as long as the system takes


@dataclass(frozen=True)
class Holder:
    """The process that a lock names; ``started`` in seconds since 1970."""

    pid: int
    host: str
    started: float
    command: str

    @classmethod
    def me(cls) -> Holder:
        """The process that asks."""
        process = psutil.Process()
        return cls(process.pid, socket.gethostname(), process.create_time(), shlex.join(process.cmdline()))

    @classmethod
    def read(cls, text: str | bytes) -> Holder | None:
        """What :attr:`text` was made of; None for anything else."""
        try:
            value = parse_json(text)
            holder = cls(value["pid"], value["host"], float(value["started"]), value["command"])
            holder.since  # noqa: B018 - a moment that no calendar has
        except (ValueError, TypeError, LookupError, ArithmeticError, OSError):
            return None
        kinds = type(holder.pid) is int, isinstance(holder.host, str), isinstance(holder.command, str)
        return holder if all(kinds) and 0 < holder.pid < 2**31 else None

    @property
    def text(self) -> str:
        """What stands in the lock."""
        return json.dumps(asdict(self)) + "\n"

    @property
    def is_elsewhere(self) -> bool:
        """On another machine, where nothing can be found out about it."""
        return self.host != socket.gethostname()

    @property
    def lives(self) -> bool:
        """Whether that process is still there, as far as can be known.

        Another one may have got its number: it then started at another time, with another command. The
        command is asked as well because a corrected clock moves the start of every process.
        """
        if self.is_elsewhere:
            return True
        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:  # ended, and its parent has not looked yet
                return False
            if abs(process.create_time() - self.started) <= _SAME_START_S:
                return True
            return self.pid != os.getpid() and shlex.join(process.cmdline()) == self.command
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True

    @property
    def since(self) -> str:
        """When it started, in local time."""
        return datetime.fromtimestamp(self.started).strftime("%Y-%m-%d %H:%M:%S")

    def __str__(self) -> str:
        """For a person."""
        told = f"process {self.pid} on {self.host}, since {self.since}: {self.command}"
        return "".join(sign if sign.isprintable() else "?" for sign in told)


class RunLock:
    """Holds a run while the context is open, so that no other process writes to it.

    A lock is stale when its process is gone: killed, or its machine was switched off. It is then taken over,
    with one notice. So is a damaged one, empty or half: locks are written in one piece, and on file systems
    without hard links in a moment, so its writer died or the machine did. A lock of another machine counts
    as held, since nobody here can know.

    path:   the lock's file
    notice: told of a lock that was taken over
    Entering raises UsageError, naming who holds the run, and StorageError if the lock cannot be written.
    """

    def __init__(self, path: Path, *, notice: Callable[[str], None]) -> None:
        self._path, self._notice = path, notice
        self._text, self._folder = "", -1

    def __enter__(self) -> RunLock:
        self._text = Holder.me().text
        try:
            stale = _take(self._path, self._text)
            self._folder = self._path.parent.stat().st_ino
            for claim in self._path.parent.glob(f"{self._path.name}.*"):
                claim.unlink(missing_ok=True)  # of somebody killed over a lock that is not there any more
        except _HeldError as held:
            raise _refusal(self._path, held.holder) from None
        except OSError as error:
            raise StorageError.of(error, what="the run cannot be locked", where=self._path) from error
        except ValueError as error:
            raise StorageError(
                "the run cannot be locked",
                where=self._path,
                why=f"{error}: no process has put it there",
                fix=f"look at it, and remove it: rm {shlex.quote(str(self._path))}",
            ) from error
        if stale is not None:
            whose = Holder.read(stale)
            who = f"it was that of {whose}" if whose else "nobody can read it"
            self._notice(f"the run was not ended properly, its lock is taken over; {who}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let others have the run. May be called twice."""
        try:
            if _read(self._path) == self._text:
                self._path.unlink(missing_ok=True)
        except (OSError, ValueError) as failure:  # the run itself has ended well; who comes next finds it
            self._notice(f"{self._path} cannot be removed: {failure}")

    def check(self) -> None:
        """Raise StorageError where the folder is not the one that was locked, or is another's by now."""
        folder = self._path.parent
        try:
            found = _read(self._path)
            if found == self._text:  # whatever the folder's number: some network file systems change it
                return
            if found is None and folder.stat().st_ino == self._folder:  # only the lock was removed
                return
            why = "another folder stands in its place" if found is None else "another process has taken it"
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
        raise StorageError(
            "the run's folder is not there any more",
            where=folder,
            why=f"{why}: it was moved or removed while the run was at work",
            fix="move it back and go on with --resume; nothing more was written to it",
        )


class _HeldError(Exception):
    """The lock is that of a process that lives."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(str(holder))
        self.holder = holder


def _take(path: Path, mine: str) -> str | None:
    """Make ``mine`` the lock's text; returns that of a stale one it replaces. Raises _HeldError and OSError.

    Of several processes that find the same stale lock only one may replace it: the one that holds a second
    lock, named after the first one's text. It looks again before it does, because another may have held the
    second lock, replaced the first and gone on in the meantime. The second lock may become stale like any
    other, and is then taken over in the same way.
    """
    damaged = None
    for _ in range(_ATTEMPTS):
        if _create(path, mine):
            return None
        found = _read(path)
        if found is None:  # released just now
            continue
        holder = Holder.read(found)
        if holder is not None and holder.lives:
            raise _HeldError(holder)
        if holder is None and found != damaged:
            damaged = found
            time.sleep(_HALF_WRITTEN_S)
        elif _replace(path, found, mine):
            return found
    raise OSError(errno.EBUSY, "it is there and is not")


def _replace(path: Path, stale: str, mine: str) -> bool:
    """Whether ``stale`` still stood in the lock, and ``mine`` does now."""
    claim = path.with_name(f"{path.name}.{hashlib.sha256(stale.encode()).hexdigest()[:12]}")
    _take(claim, mine)
    try:
        if _read(path) != stale:
            return False
        _draft(path, mine).replace(path)
        return True
    finally:
        claim.unlink(missing_ok=True)


def _create(path: Path, text: str) -> bool:
    """Make the file with its whole text in one step; False if there is one already."""
    draft = _draft(path, text)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError:
        return _create_without_links(path, text)
    finally:
        draft.unlink(missing_ok=True)
    return True


def _create_without_links(path: Path, text: str) -> bool:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return _read(path) == text  # unless somebody held it for half written


def _draft(path: Path, text: str) -> Path:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    write_durably(draft, text.encode())
    return draft


def _read(path: Path) -> str | None:
    with contextlib.suppress(FileNotFoundError):
        return read_bytes(path, _LONGEST).decode("utf-8", "replace")
    return None


def _refusal(path: Path, holder: Holder) -> UsageError:
    remove = f"rm {shlex.quote(str(path))}"
    if holder.is_elsewhere:
        fix = f"wait for it or end it there; if that machine or process is gone:\n{remove}"
    else:
        fix = f"wait for it, or end it:\nkill {holder.pid}"
    return UsageError(
        "another process is at work on this run",
        where=path,
        why=str(holder),
        fix=f"{fix}\nor train another run with -n",
    )
