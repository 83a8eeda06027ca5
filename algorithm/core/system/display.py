"""Windows on the screen of this machine."""

from __future__ import annotations

import os
import sys


def has_display() -> bool:
    """Return whether a window can be opened."""
    return sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
