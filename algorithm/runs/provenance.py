"""What a run was made with: versions of the libraries, commit of the program, machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Collection, Iterable, Mapping
from importlib import metadata
from itertools import chain
from pathlib import Path

from algorithm.reading import read_bytes

LIBRARIES = ("torch", "numpy", "gymnasium", "pydantic", "pyyaml", "safetensors", "tensorboard", "rich")
_OURS = ("algorithm", "ds")
SOURCE = Path(__file__).resolve().parents[2]


def host() -> dict[str, object]:
    """Name, system and number of processors of this machine."""
    return {"name": socket.gethostname(), "system": platform.platform(), "cpus": os.cpu_count()}


def library_versions() -> dict[str, str | None]:
    """Installed versions of the main libraries; None for one that is missing. Imports none of them."""
    versions: dict[str, str | None] = dict.fromkeys(LIBRARIES)
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def made_with(task: Path, apart: Collection[str] = ()) -> dict[str, str | None]:
    """What decides, beside configuration and seed, which numbers a training comes to.

    task:  its folder; what it imports may lie beside its ``config.yaml``
    apart: files in it that somebody else looks after
    Returns versions, and the SHA-256 of the program's code and of the task's.
    """
    versions = library_versions()
    own = [file for file in task.glob("*.py") if file.name not in apart and (task / "config.yaml").is_file()]
    return {
        "Python": platform.python_version(),
        **{name: versions[name] for name in ("torch", "numpy", "gymnasium")},
        "the program's code": _digest(chain(*((SOURCE / name).rglob("*.py") for name in _OURS)), SOURCE),
        "the code in the task's folder": _digest(own, task),
    }


def what_differs(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """A line for each entry of :func:`made_with` that is another one by now."""
    changed = [name for name in now if name in before and before[name] != now[name]]
    return [
        f"{name} has been changed since"
        if "code" in name
        else f"{name} was {before[name]} and is {now[name]}"
        for name in changed
    ]


def _digest(files: Iterable[Path], root: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        with contextlib.suppress(OSError, ValueError):
            digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
            digest.update(hashlib.sha256(read_bytes(file, follow=True)).digest())
    return digest.hexdigest()


def file_state(file: Path) -> dict[str, object]:
    """Path and checksum of a file. Raises OSError."""
    return {"path": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def git_state(source: Path = SOURCE) -> dict[str, object] | None:
    """Commit of the program's checkout and whether files were changed since; None outside of one."""
    if shutil.which("git") is None:
        return None

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(
            ["git", "-C", str(source), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.splitlines()

    try:
        top, commit = git("rev-parse", "--show-toplevel", "HEAD")
        if Path(top).resolve() != source.resolve():  # installed somewhere inside another project
            return None
        return {"commit": commit, "changed": bool(git("status", "--porcelain"))}
    except (subprocess.SubprocessError, OSError):  # no repository, no commit yet, not allowed to look
        return None
