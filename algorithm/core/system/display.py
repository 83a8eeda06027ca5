"""Windows on the screen of this machine, and notebooks."""

from __future__ import annotations

import os
import sys


def in_notebook() -> bool:
    """Return whether what is printed goes into a cell of a notebook."""
    return type(sys.stdout).__module__.startswith("ipykernel.")


def has_display() -> bool:
    """Return whether a window can be opened."""
    return sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
