"""The tables of the documentation: figures of ``results/`` as Markdown.

Each function takes the folder of the results. It raises MissingError, with the measurement that would help,
where its figures are not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import render_checkpoints
import render_inbox
import render_memory
import render_pixels
import render_prefetch
import render_representation
import render_sweeps
from cells import difference, every, named, one, short, source, table

SIDES = {"ours": "this project", "peer": "Stable-Baselines3"}


def updates(results: Path) -> str:
    """Every series of pairs, oldest first."""
    rows = []
    for figures in sorted(every(results, "updates"), key=lambda figures: str(figures["date"])):
        median = figures["medians"]
        rows.append(
            [
                source(figures),
                f"{median['ours']:.1f}",
                f"{median['peer']:.1f}",
                f"{median['ratio']:.2f}",
                " ".join(f"{row['ratio']:.2f}" for row in figures["rates"]),
            ]
        )
    head = ["measured", "this project", "Stable-Baselines3", "ratio, median of pairs", "pairs"]
    return table(head, rows)


def steps(results: Path) -> str:
    """Environment steps per second of every task."""
    rows = []
    for task in one(results, "steps")["tasks"].values():
        median = task["medians"]
        pairs = " ".join(f"{row['ratio']:.2f}" for row in task["rates"])
        speeds = [f"{median['ours']:.1f}", f"{median['peer']:.1f}", f"{median['ratio']:.2f}", pairs]
        rows.append([short(task["env_id"]), *speeds])
    return table(["task", "this project", "Stable-Baselines3", "ratio, median of pairs", "pairs"], rows)


def shares(results: Path) -> str:
    """Milliseconds of a step by activity, and their part of it, for either side of every task."""
    rows, parts = [], []
    for task in one(results, "steps")["tasks"].values():
        for side, label in SIDES.items():
            share = task["shares"][side]
            parts = list(share)
            whole = 1000 / task["medians"][side]
            cells = [f"{part * whole:.2f} ({part:.0%})" for part in share.values()]
            rows.append([f"{short(task['env_id'])}, {label}", *cells])
    return table(["ms a step", *parts], rows)


def replay_time(results: Path) -> str:
    """Microseconds of the replay's operations, one value a run."""
    runs = one(results, "replay")["microseconds"]
    kinds = list(runs[0])
    rows = []
    for operation in runs[0][kinds[0]]:
        cells = [", ".join(f"{run[kind][operation]:.0f}" for run in runs) for kind in kinds]
        rows.append([operation, *cells])
    return table(["µs a call", *kinds], rows)


def replay_memory(results: Path) -> str:
    """Bytes of a transition."""
    rows = []
    for row in one(results, "replay")["bytes"]:
        peer = row["SB3"]
        own = [f"{row[kind]:.0f} ({row[kind] / peer:.2f})" for kind in ("rows", "with tree")]
        rows.append([f"{row['obs']:.0f}, {row['action']:.0f}", f"{peer:.0f}", *own])
    head = [
        "observation, action",
        "Stable-Baselines3, bytes per transition",
        "this project",
        "with priorities",
    ]
    return table(head, rows)


def learning(results: Path) -> str:
    """What was learned on every task, and how far that is from the peer; with the pictures."""
    rows, pictures = [], []
    for name, figures in named(results, "learning"):
        for side, means in figures["means"].items():
            label = SIDES.get(side, f"preset {figures['preset']}")
            rows.append([short(figures["env_id"]), label, *_learned(figures, side, means)])
        task = name.removeprefix("learning_")
        alt = f"Evaluation return over environment steps on {short(figures['env_id'])}, both libraries"
        pictures.append(f"![{alt}](images/learning_{task}.png)")
    away = "− Stable-Baselines3"
    head = ["task", "", "seeds", "last evaluation", away, "mean height", away]
    return "\n\n".join([table(head, rows), *pictures])


def _learned(figures: Mapping[str, Any], side: str, means: Mapping[str, Any]) -> list[str]:
    found = figures["comparisons"].get(side)
    cells = [str(len(means["seeds"]))]
    for what in ("final", "area"):
        cells += [f"{means[what]:.1f}", difference(found[what]) if found else ""]
    return cells


def workers(results: Path) -> str:
    """Environment steps per second for every number of copies and arrangement."""
    speed = one(results, "workers")["speed"]
    found = dict.fromkeys(name for row in speed for name in row["medians"])
    names = sorted(found, key=lambda name: not name.startswith("workers"))  # the peers come last
    titles = {"workers 0": "in process", "sync": "Gymnasium Sync", "async": "Gymnasium Async"}
    rows = []
    for row in speed:
        medians = row["medians"]
        rows.append([str(row["copies"]), *(f"{medians[n]:.0f}" if n in medians else "" for n in names)])
    heads = [titles.get(name, name.replace("workers ", "workers: ")) for name in names]
    return table(["copies", *heads], rows)


def identity(results: Path) -> str:
    """What different numbers of worker processes learned."""
    found = one(results, "workers")["identity"]
    rows = [[number, f"`{digest[:16]}…`"] for number, digest in found["sha256"].items()]
    return table(["workers", f"SHA-256 of model.safetensors after {found['steps']} steps"], rows)


TABLES: dict[str, Callable[[Path], str]] = {
    "updates": updates,
    "steps": steps,
    "shares": shares,
    "replay-time": replay_time,
    "replay-memory": replay_memory,
    "learning": learning,
    "workers": workers,
    "identity": identity,
    **render_pixels.TABLES,
    **render_sweeps.TABLES,
    **render_memory.TABLES,
    **render_representation.TABLES,
    **render_checkpoints.TABLES,
    **render_prefetch.TABLES,
    **render_inbox.TABLES,
}
"""What a page may ask for."""
