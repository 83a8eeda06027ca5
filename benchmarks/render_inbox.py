"""The tables of what a learner receives and what that costs it: those of ``inbox.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cells import one, table

CASES = {
    "vectors": "500 × 27 floats",
    "images": "100 × 84×84×1 bytes",
    "short": "20 × 4 floats",
}
"""Cases of ``inbox.py`` in words."""

COSTS = {
    "decode": "decode",
    "check": "check",
    "grpc": "gRPC, asyncio, inbox",
    "threads": "gRPC's threads",
    "store": "store",
    "feed": "rest of the main thread",
    "all": "together",
}


def receive(results: Path) -> str:
    """Segments a second for every case and number of actors."""
    found = one(results, "inbox")
    rows = [
        [
            _case(case),
            f"{case['bytes'] / 1000:.1f}",
            str(row["actors"]),
            f"{row['parcels_per_second']:.0f}",
            f"{row['mb_per_second']:.1f}",
            f"{sum(row['cpu_us'].values()):.0f}",
            f"{row['server_share']:.0%}",
        ]
        for case in found["receive"]
        for row in case["rows"]
    ]
    head = ["segment", "kB", "actors", "segments/s", "MB/s", "CPU-µs a segment", "server's thread is busy"]
    return f"{table(head, rows)}\n\n{_load(found)}"


def costs(results: Path) -> str:
    """Where the CPU time of a segment goes."""
    rows = [
        [_case(case), *(f"{case['cpu_us'][name]:.0f}" for name in COSTS)]
        for case in one(results, "inbox")["receive"]
    ]
    return table(["CPU-µs a segment", *COSTS.values()], rows)


def weights(results: Path) -> str:
    """How long weights take to reach everybody."""
    rows = [
        [
            size,
            str(row["actors"]),
            f"{row['seconds']:.2f}",
            f"{row['mb_per_second']:.0f}",
            f"{1000 * row['publish_seconds']:.0f}",
            f"{1000 * row['server_cpu']:.0f}",
            f"{row['updates_per_second']['alone']:.1f}",
            f"{row['updates_per_second']['meanwhile']:.1f}",
            f"{row['waiting_ms']:.2f}",
        ]
        for size, row in one(results, "inbox")["weights"].items()
    ]
    head = ["weights", "actors", "s until all have them", "MB/s", "ms to publish, main thread"]
    head += ["CPU-ms of the threads that send", "updates/s before", "updates/s meanwhile"]
    head += ["ms an update waits for locks"]
    return table(head, rows)


def learn(results: Path) -> str:
    """Updates a second beside traffic."""
    rows = [
        [
            "1 thread ahead" if part["prefetchers"] == 1 else "when wanted",
            f"{row['share']:.0%}",
            f"{1000 * row['interval']:g}",
            f"{row['parcels_per_second']:.0f}",
            f"{row['updates_per_second']:.1f}",
            f"{row['main_cpu_ms']:.1f}",
            f"{row['waiting_ms']:.2f}",
            f"{row['ratio']:.2f}",
            f"{row['interval_ratio']:.2f}",
        ]
        for part in one(results, "inbox")["learn"]
        for row in part["rows"]
    ]
    head = ["batches drawn", "traffic", "switch interval, ms", "segments/s", "updates/s"]
    head += ["CPU-ms an update, main thread", "ms an update waits for locks", "to no traffic", "to 5 ms"]
    return table(head, rows)


def _case(case: Mapping[str, Any]) -> str:
    return CASES[case["case"]] + (", TLS and token" if case["secure"] else "")


def _load(found: Mapping[str, Any]) -> str:
    before, after = found["setting"]["load"]
    return f"Load of the machine before and after: {before:.1f}, {after:.1f}."


TABLES: dict[str, Callable[[Path], str]] = {
    "inbox-receive": receive,
    "inbox-costs": costs,
    "inbox-weights": weights,
    "inbox-learn": learn,
}
"""What a page may ask for."""
