"""The program that plays a graph without torch, for ``--card``."""

from __future__ import annotations

from pathlib import Path


def player_text() -> str:
    """Return the text of ``play.py``."""
    return Path(__file__).with_name("play.py").read_text("utf-8")
