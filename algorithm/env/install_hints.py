"""Hints for packages that an environment needs and that are not installed."""

from __future__ import annotations

import gymnasium as gym

_EXTRAS = {
    "ale_py": "atari",
    "opencv": "atari",
    "Box2D": "box2d",
    "popgym": "popgym",
    "minigrid": "minigrid",
    "mujoco": "mujoco",
    "dm_control": "dmc",
}
"""Package named in an import error -> the extra of pyproject.toml that contains it."""


def advice(error: Exception, otherwise: str) -> str:
    """Return the command that installs what ``error`` misses, or ``otherwise``."""
    if isinstance(error, ImportError | gym.error.DependencyNotInstalled):
        for package, extra in _EXTRAS.items():
            if package in str(error):
                return f'in the project\'s folder: .venv/bin/python -m pip install -e ".[{extra}]"'
    return otherwise
