"""Install the peers into environments of their own, as ``make bench-peers`` does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version

from benchmarks.harness import PEERS, SHARED

PEER_VERSION = "2.9.2"  # of Stable-Baselines3 and of sb3-contrib, which has CrossQ and TQC
SBX_VERSION = "0.28.0"  # the same algorithms in JAX
TIANSHOU_VERSION = "2.0.1"
RLIABLE_VERSION = "1.2.0"  # what our statistics are held against; its arch needs an older pandas
TASKS = (
    "pybullet pybullet-envs-gymnasium box2d mujoco imageio pygame-ce minigrid ale-py opencv-python-headless"
)
"""Packages of the compared environments; the same versions on both sides."""


def requirements() -> dict[str, list[str]]:
    """Environment → its peers, and our own versions of what both use."""
    shared, tasks = (
        [f"{name}=={version(name).partition('+')[0]}" for name in names] for names in (SHARED, TASKS.split())
    )
    contrib, sbx = f"sb3-contrib=={PEER_VERSION}", f"sbx-rl=={SBX_VERSION}"
    statistics = [f"rliable=={RLIABLE_VERSION}", "pandas<3"]
    return {
        "sb3": [f"stable-baselines3=={PEER_VERSION}", contrib, sbx, *statistics, *shared, *tasks],
        "tianshou": [f"tianshou=={TIANSHOU_VERSION}", *shared],
    }


def set_up() -> None:
    """Install the requirements; does nothing where they are there already."""
    for name, wanted in requirements().items():
        folder = PEERS / name
        stamp = folder / ".installed"
        if stamp.exists() and stamp.read_text().split() == wanted:
            continue
        print(f"Installing {wanted[0]} into {folder} (about a minute) …", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = ["-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check", *wanted]
        subprocess.run([str(folder / "bin" / "python"), *install], check=True)
        stamp.write_text("\n".join(wanted) + "\n")


if __name__ == "__main__":
    set_up()
