"""Hints for packages that an environment needs and that are not installed."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import gymnasium as gym

from algorithm.core.errors import mend

_EXTRAS = {
    "ale_py": "atari",
    "opencv": "atari",
    "Box2D": "box2d",
    "popgym": "popgym",
    "minigrid": "minigrid",
    "gymnasium_robotics": "robotics",
    "mujoco": "mujoco",
    "pybullet": "bullet",
    "dm_control": "dmc",
}
"""Package named in an import error -> the extra of pyproject.toml that contains it."""

_UNTIL = {"dmc": (3, 13)}
"""Extra -> the first Python for which a package of it cannot be had."""

_CHECKOUT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def install_command(extra: str) -> str:
    """Return the command that installs an extra, of a checkout or of the installed package.

    Where there is none for this version of Python, return that instead.
    """
    if extra in _UNTIL and sys.version_info >= _UNTIL[extra]:
        major, minor = _UNTIL[extra]
        older = f"Python {major}.{minor - 1} or an older one"
        return f"use {older}: for {major}.{minor} the extra {extra} has no packages"
    editable = "-e " if _CHECKOUT.is_file() else ""
    return f'in the project\'s folder: {sys.executable} -m pip install {editable}".[{extra}]"'


def advice(error: BaseException, otherwise: str) -> str:
    """Return what to correct, or the command that installs what is missing, or ``otherwise``."""
    if isinstance(error, ImportError | gym.error.DependencyNotInstalled):
        for package, extra in _EXTRAS.items():
            if package in str(error):
                return install_command(extra)
    if isinstance(error, AssertionError) and _raised_in(error, "gymnasium_robotics"):
        return f"it may need an older MuJoCo than is installed, {install_command('robotics')}"
    return mend(error) or otherwise


def _raised_in(error: BaseException, package: str) -> bool:
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__", "").split(".")[0] == package for frame in frames)
