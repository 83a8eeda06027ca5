"""Which optional part of the installation brings the package that an environment misses."""

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
"""What an import error says is missing -> the extra of pyproject.toml that has it."""


def advice(error: Exception, otherwise: str) -> str:
    """What to do about an ``error`` in making an environment: install what it misses, or ``otherwise``."""
    if isinstance(error, ImportError | gym.error.DependencyNotInstalled):
        for package, extra in _EXTRAS.items():
            if package in str(error):
                return f'in the project\'s folder: .venv/bin/python -m pip install -e ".[{extra}]"'
    return otherwise
