"""Hints for packages that an environment needs and that are not installed."""

from __future__ import annotations

import traceback

import gymnasium as gym

from algorithm.core.errors import mend
from algorithm.core.extras import install_command

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
