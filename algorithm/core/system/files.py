"""Files: flags of opening, what survives a power cut, changes of names, rights.

Imports neither torch nor numpy.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from algorithm.core import system

# No waiting for a pipe, nothing for child processes, and on Windows no translation of line ends.
_FLAGS = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_RETRY_S, _PAUSE_S = 2.0, 0.05  # for another process to close a file: scanners for viruses open each new one


def open_file(path: Path, flags: int, *, mode: int = 0o666, follow: bool = False) -> int:
    """Open a file as :func:`os.open` does, in binary and without waiting; return its descriptor.

    follow: whether a symbolic link is allowed. Raises OSError, with ELOOP for such a link.
    """
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
        if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return os.open(path, flags | _FLAGS, mode)


def link_in_memory(path: Path, data: bytes) -> None:
    """Make ``path`` a link to data in this process's memory, which ends with the process.

    Where the system has no such memory, it is a file that only its owner may read.
    """
    if not hasattr(os, "memfd_create"):
        path.touch(0o600, exist_ok=False)
        path.write_bytes(data)
        return
    descriptor = os.memfd_create(path.name)
    os.write(descriptor, data)
    path.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
    path.chmod(0o600)


def sync(handle: int) -> None:
    """Write a file's data to the disk, so that it survives a power cut. Raises OSError.

    macOS leaves data in the memory of the drive unless another request is made. Windows requires a file
    that is open for writing.
    """
    if sys.platform == "darwin":
        import fcntl

        with contextlib.suppress(OSError):  # a disk of the network does not know it
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            return
    os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Make names created or renamed in ``folder`` survive a power cut. Raises OSError.

    Does nothing on Windows, where a folder cannot be opened; NTFS writes down changes of names by itself.
    """
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        sync(handle)
    finally:
        os.close(handle)


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder; see :func:`replace`."""
    _patiently(lambda: source.rename(target))


def replace(source: Path, target: Path) -> None:
    """Rename ``source``, in place of a file ``target``. Raises OSError.

    Windows refuses that while any process has either of them open, so it is tried for two seconds there.
    """
    _patiently(lambda: source.replace(target))


def _patiently(change: Callable[[], object]) -> None:
    """Call a function, on Windows again for two seconds while another process has the file open."""
    deadline = time.monotonic() + _RETRY_S
    while True:
        try:
            change()
        except PermissionError:
            if not system.WINDOWS or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


def remove_held(path: Path) -> None:
    """Remove a file that this process has open; on Windows it stays until it is closed. Raises OSError."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        if not system.WINDOWS:
            raise


def others_may_read(path: Path) -> bool:
    """Return whether every user of this machine may read a file; unknown on Windows, and then False."""
    return not system.WINDOWS and bool(path.stat().st_mode & stat.S_IRWXO)
