"""Install Stable-Baselines3 into an environment of its own, as ``make bench-peers`` does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version

from benchmarks.harness import PEER, PEER_PYTHON, SHARED

PEER_VERSION = "2.9.2"  # of Stable-Baselines3 and of sb3-contrib, which has CrossQ and TQC
SBX_VERSION = "0.28.0"  # the same algorithms in JAX
TASKS = "pybullet pybullet-envs-gymnasium box2d pygame-ce minigrid ale-py opencv-python-headless"
"""Packages of the compared environments; the same versions on both sides."""


def requirements() -> list[str]:
    """The peers, and our own versions of what both use."""
    both = [f"{name}=={version(name).partition('+')[0]}" for name in (*SHARED, *TASKS.split())]
    return [
        f"stable-baselines3=={PEER_VERSION}",
        f"sb3-contrib=={PEER_VERSION}",
        f"sbx-rl=={SBX_VERSION}",
        *both,
    ]


def set_up() -> None:
    """Install the requirements; does nothing where they are there already."""
    stamp, wanted = PEER / ".installed", requirements()
    if stamp.exists() and stamp.read_text().split() == wanted:
        return
    print(f"Installing {wanted[0]} into {PEER} (about a minute) …", file=sys.stderr)
    shutil.rmtree(PEER, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
    install = ["-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check", *wanted]
    subprocess.run([str(PEER_PYTHON), *install], check=True)
    stamp.write_text("\n".join(wanted) + "\n")


if __name__ == "__main__":
    set_up()
