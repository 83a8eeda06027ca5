"""Calls that differ between Linux, macOS and Windows, or that not all of them have."""

from __future__ import annotations

import sys

WINDOWS = sys.platform == "win32"
"""True where open files have locked names and rights are no bits of a mode."""
