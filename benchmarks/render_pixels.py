"""The tables of ``pixels``: speed, bytes of a transition, and memory over a long run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cells import MissingError, one, table

SIDES = {"ours": "this project, SAC", "peer": "Stable-Baselines3, DQN"}
LIBRARIES = {"ours": "this project", "peer": "Stable-Baselines3"}


def speed(results: Path) -> str:
    """Steps per second of either side, and where a step's time goes."""
    found = _part(results, "speed")
    rows, parts = [], list(found["shares"]["ours"])
    for side, label in SIDES.items():
        rate, weights = found["medians"][side], found["answers"][0][side]["parameters"]
        cells = [f"{share * 1000 / rate:.2f}" for share in (found["shares"][side][part] for part in parts)]
        rows.append([label, f"{rate:.1f}", *cells, f"{found['peak_rss_mb'][side]:.0f}", f"{weights:,}"])
    pairs = " ".join(f"{row['ratio']:.2f}" for row in found["rates"])
    head = ["", "steps/s", *(f"{part}, ms a step" for part in parts), "largest memory, MB", "trained weights"]
    ratio = f"Ratio of steps/s, median of pairs: {found['medians']['ratio']:.2f} (pairs: {pairs})."
    return f"{table(head, rows)}\n\n{ratio}"


def memory(results: Path) -> str:
    """Bytes of a stored transition."""
    found = _part(results, "memory")
    (peer,) = (row["computed_bytes"] for row in found if row["kind"] == "default")
    rows = [
        [
            f"{LIBRARIES[row['side']]}, {row['kind']}",
            f"{row['computed_bytes']:.0f}",
            f"{row['measured_bytes']:.0f}",
            f"{row['computed_bytes'] / peer:.3f}",
        ]
        for row in found
    ]
    return table(["replay", "bytes per transition", "measured", "of Stable-Baselines3's default"], rows)


def long(results: Path) -> str:
    """Speed and resident memory of a long run."""
    found = _part(results, "long")
    cells = [f"{found['steps']:,}", f"{found['capacity']:,}", f"{found['steps'] / found['seconds']:.1f}"]
    cells += [f"{found[name]:.0f}" for name in ("mb_at_half", "mb_at_end", "mb_largest")]
    cells.append(f"{found['mb_per_1000_steps']:+.3f}")
    head = ["steps", "rows of the replay", "steps/s", "MB at half", "MB at the end", "largest"]
    return table([*head, "slope of the second half, MB per 1000 steps"], [cells])


TABLES: dict[str, Callable[[Path], str]] = {
    "pixels-speed": speed,
    "pixels-memory": memory,
    "pixels-long": long,
}
"""What a page may ask for."""


def _part(results: Path, name: str) -> Any:
    figures = one(results, "pixels")
    if name not in figures:
        raise MissingError("pixels")
    return figures[name]
