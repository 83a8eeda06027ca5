"""Provenance of a run: versions of the libraries, commit of the program, machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from itertools import chain
from pathlib import Path

from algorithm.core.plugins import Plugin
from algorithm.core.reading import read_bytes

LIBRARIES = ("torch", "numpy", "gymnasium", "pydantic", "pyyaml", "safetensors", "tensorboard", "rich")
_OURS = ("algorithm", "ds")
SOURCE = Path(__file__).resolve().parents[2]


def host() -> dict[str, object]:
    """Return name, system and number of processors of the machine."""
    return {"name": socket.gethostname(), "system": platform.platform(), "cpus": os.cpu_count()}


def library_versions() -> dict[str, str | None]:
    """Return the installed versions of the main libraries, None for a missing one; imports none of them."""
    versions: dict[str, str | None] = dict.fromkeys(LIBRARIES)
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def made_with(
    task: Path, apart: Collection[str] = (), plugins: Collection[Plugin] = ()
) -> dict[str, str | None]:
    """Return versions of libraries and checksums of code, which affect results beside configuration and seed.

    task:    folder of the task; its modules may lie beside its ``config.yaml``
    apart:   files in it that are compared elsewhere
    plugins: the user's own parts that are used, and loaded
    Code is represented by its SHA-256: the program's, the task's, and that of each part's package.
    """
    versions = library_versions()
    task_files = [
        file for file in task.glob("*.py") if file.name not in apart and (task / "config.yaml").is_file()
    ]
    return {
        "Python": platform.python_version(),
        **{name: versions[name] for name in ("torch", "numpy", "gymnasium")},
        "the program's code": _digest(chain(*((SOURCE / name).rglob("*.py") for name in _OURS)), SOURCE),
        "the code in the task's folder": _digest(task_files, task),
        **{f"the code of {plugin.top}": _digest(*plugin.sources()) for plugin in plugins},
    }


def what_differs(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Return a line for each entry that differs between two results of :func:`made_with` and is in both."""
    changed = [name for name in now if name in before and before[name] != now[name]]
    return [
        f"{name} has been changed since"
        if "code" in name
        else f"{name} was {before[name]} and is {now[name]}"
        for name in changed
    ]


def _digest(files: Iterable[Path], root: Path) -> str:
    """Return the SHA-256 of files and their paths below ``root``; unreadable ones are left out."""
    digest = hashlib.sha256()
    for file in sorted(files):
        with contextlib.suppress(OSError, ValueError):
            digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
            digest.update(hashlib.sha256(read_bytes(file, follow=True)).digest())
    return digest.hexdigest()


def file_state(file: Path) -> dict[str, object]:
    """Return path and checksum of a file. Raises OSError."""
    return {"path": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def git_state(source: Path = SOURCE) -> dict[str, object] | None:
    """Return the commit of the program's checkout, and whether files changed since; None without one."""
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
    except (subprocess.SubprocessError, OSError):  # no repository, no commit yet, no permission
        return None


def describe_start(
    arguments: Sequence[str],
    env_file: Path | None = None,
    plugins: Iterable[Plugin] = (),
    env_objects: Mapping[str, str] | None = None,
    device: str = "auto",
) -> dict[str, object]:
    """Return facts about the start of a training, for the manifest.

    arguments:   ``sys.argv``
    env_file:    file with the task's own environment
    plugins:     the user's own parts that are used
    env_objects: purpose -> description of an environment that was passed as an object
    device:      device that the user has chosen
    """
    return {
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "arguments": list(arguments),
        "device": device,
        "python": sys.version.split()[0],
        "versions": library_versions(),
        "git": git_state(),
        "host": host(),
        "env_file": file_state(env_file) if env_file else None,
        "plugins": [plugin.value for plugin in plugins],
        **({"env_objects": dict(env_objects)} if env_objects else {}),
    }
