"""The table of batches drawn ahead: ``prefetch``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cells import one, table

CASES = {
    "vectors": "256 transitions of 3 numbers",
    "images": "64 transitions of 64×64×3 images",
    "windows": "64 windows of 35 tokens, GRU",
}
"""Cases of ``prefetch.py`` in words."""


def prefetch(results: Path) -> str:
    """Every case without threads and with each number of them, and how busy the machine was."""
    found = one(results, "prefetch")
    rows = [
        [
            CASES[case],
            str(row["prefetchers"]) if row["prefetchers"] else "none",
            f"{row['updates_per_second']:.1f}",
            f"{row['sample_ms']:.2f}",
            f"{row['cpu_ms']:.1f}",
            f"{row['ratio']:.2f}",
            " ".join(f"{ratio:.2f}" for ratio in row["ratios"]) if row["prefetchers"] else "",
        ]
        for case, numbers in found["cases"].items()
        for row in numbers
    ]
    head = ["batch", "threads", "updates/s", "ms to get a batch", "CPU-ms an update"]
    before, after = found["setting"]["load"]
    told = f"Load of the machine before and after: {before:.1f}, {after:.1f}."
    return f"{table([*head, 'ratio, median of rounds', 'rounds'], rows)}\n\n{told}"


TABLES: dict[str, Callable[[Path], str]] = {"prefetch": prefetch}
"""What a page may ask for."""
