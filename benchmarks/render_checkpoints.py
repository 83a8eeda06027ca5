"""The table of checkpoints: ``checkpoints``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cells import one, table


def checkpoints(results: Path) -> str:
    """Every case: what is stored, what each operation takes, and the memory it needs beside."""
    found = one(results, "checkpoints")
    further = found["setting"]["further"]
    head = [
        "transitions",
        "carry",
        "replay, MB",
        "first save, MB",
        "s",
        f"save {further:,} steps later, MB",
        "s",
        "verify and load, s",
        "most memory beside the replay, MB",
    ]
    rows = [
        [
            f"{case['transitions']:,}",
            "64" if case["memory"] == "RNN" else "none",
            f"{case['replay_mb']:.0f}",
            f"{case['bytes']['first'] / 1e6:.1f}",
            f"{case['seconds']['first']:.2f}",
            f"{case['bytes']['next'] / 1e6:.1f}",
            f"{case['seconds']['next']:.2f}",
            f"{case['seconds']['load']:.2f}",
            f"{max(case['peak_mb'].values()):.0f}",
        ]
        for case in found["cases"]
    ]
    return table(head, rows)


TABLES: dict[str, Callable[[Path], str]] = {"checkpoints": checkpoints}
"""What a page may ask for."""
