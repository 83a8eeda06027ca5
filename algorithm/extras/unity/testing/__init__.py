"""Scripted Unity player: the build's side of the ML-Agents protocol, over real gRPC.

``python -m algorithm.extras.unity.testing --help`` runs it by hand; :func:`make_build` writes an executable
file that a configuration can name as its build. The player steps as the C# package does: agents send their
state, the trainer decides, agents act. The end of an episode goes with the next message, or in one
of its own if no agent requests a decision.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
"""Folder from which the package is imported."""


def make_build(folder: Path, *args: str, name: str = "Player") -> Path:
    """Write ``folder/name.x86_64``, which runs the player with ``args``; return its path."""
    file = folder / f"{name}.x86_64"
    command = shlex.join([sys.executable, "-m", "algorithm.extras.unity.testing", *args])
    file.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {command} "$@"\n', "utf-8")
    file.chmod(0o755)
    return file
