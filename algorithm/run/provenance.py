"""What a run was made with: versions of the libraries, commit of the program, machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import socket
import subprocess
from importlib import metadata
from pathlib import Path

LIBRARIES = ("torch", "numpy", "gymnasium", "pydantic", "pyyaml", "safetensors", "tensorboard", "rich")
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
