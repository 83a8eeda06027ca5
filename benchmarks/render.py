"""The tables of the documentation: figures of ``results/`` as Markdown.

Each function takes the folder of the results. It raises MissingError, with the measurement that would help,
where its figures are not there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

SIDES = {"ours": "this project", "peer": "Stable-Baselines3"}


class MissingError(Exception):
    """There are no figures for a table; the argument is what ``make bench ONLY=…`` calls them."""


def updates(results: Path) -> str:
    """Every series of pairs, oldest first."""
    rows = []
    for figures in sorted(_all(results, "updates"), key=lambda figures: str(figures["date"])):
        median = figures["medians"]
        rows.append(
            [
                _source(figures),
                f"{median['ours']:.1f}",
                f"{median['peer']:.1f}",
                f"{median['ratio']:.2f}",
                " ".join(f"{row['ratio']:.2f}" for row in figures["rates"]),
            ]
        )
    head = ["measured", "this project", "Stable-Baselines3", "ratio, median of pairs", "pairs"]
    return _table(head, rows)


def steps(results: Path) -> str:
    """Environment steps per second of every task."""
    rows = []
    for task in _one(results, "steps")["tasks"].values():
        median = task["medians"]
        pairs = " ".join(f"{row['ratio']:.2f}" for row in task["rates"])
        speeds = [f"{median['ours']:.1f}", f"{median['peer']:.1f}", f"{median['ratio']:.2f}", pairs]
        rows.append([_short(task["env_id"]), *speeds])
    return _table(["task", "this project", "Stable-Baselines3", "ratio, median of pairs", "pairs"], rows)


def shares(results: Path) -> str:
    """Milliseconds of a step by activity, and their part of it, for either side of every task."""
    rows, parts = [], []
    for task in _one(results, "steps")["tasks"].values():
        for side, label in SIDES.items():
            share = task["shares"][side]
            parts = list(share)
            whole = 1000 / task["medians"][side]
            cells = [f"{part * whole:.2f} ({part:.0%})" for part in share.values()]
            rows.append([f"{_short(task['env_id'])}, {label}", *cells])
    return _table(["ms a step", *parts], rows)


def replay_time(results: Path) -> str:
    """Microseconds of the replay's operations, one value a run."""
    runs = _one(results, "replay")["microseconds"]
    kinds = list(runs[0])
    rows = []
    for operation in runs[0][kinds[0]]:
        cells = [", ".join(f"{run[kind][operation]:.0f}" for run in runs) for kind in kinds]
        rows.append([operation, *cells])
    return _table(["µs a call", *kinds], rows)


def replay_memory(results: Path) -> str:
    """Bytes of a transition."""
    rows = []
    for row in _one(results, "replay")["bytes"]:
        peer = row["SB3"]
        own = [f"{row[kind]:.0f} ({row[kind] / peer:.2f})" for kind in ("rows", "with tree")]
        rows.append([f"{row['obs']:.0f}, {row['action']:.0f}", f"{peer:.0f}", *own])
    head = [
        "observation, action",
        "Stable-Baselines3, bytes per transition",
        "this project",
        "with priorities",
    ]
    return _table(head, rows)


def learning(results: Path) -> str:
    """What was learned on every task, and how far that is from the peer; with the pictures."""
    rows, pictures = [], []
    for name, figures in _named(results, "learning"):
        for side, means in figures["means"].items():
            label = SIDES.get(side, f"preset {figures['preset']}")
            rows.append([_short(figures["env_id"]), label, *_learned(figures, side, means)])
        task = name.removeprefix("learning_")
        alt = f"Evaluation return over environment steps on {_short(figures['env_id'])}, both libraries"
        pictures.append(f"![{alt}](images/learning_{task}.png)")
    away = "− Stable-Baselines3"
    head = ["task", "", "seeds", "last evaluation", away, "mean height", away]
    return "\n\n".join([_table(head, rows), *pictures])


def _learned(figures: Mapping[str, Any], side: str, means: Mapping[str, Any]) -> list[str]:
    found = figures["comparisons"].get(side)
    cells = [str(len(means["seeds"]))]
    for what in ("final", "area"):
        cells += [f"{means[what]:.1f}", _difference(found[what]) if found else ""]
    return cells


def _difference(found: Mapping[str, Any]) -> str:
    low, high = found["ci95"]
    return f"{found['difference']:+.1f} [{low:+.1f}, {high:+.1f}], {found['verdict']}"


def workers(results: Path) -> str:
    """Environment steps per second for every number of copies and arrangement."""
    speed = _one(results, "workers")["speed"]
    found = dict.fromkeys(name for row in speed for name in row["medians"])
    names = sorted(found, key=lambda name: not name.startswith("workers"))  # the peers come last
    titles = {"workers 0": "in process", "sync": "Gymnasium Sync", "async": "Gymnasium Async"}
    rows = []
    for row in speed:
        medians = row["medians"]
        rows.append([str(row["copies"]), *(f"{medians[n]:.0f}" if n in medians else "" for n in names)])
    heads = [titles.get(name, name.replace("workers ", "workers: ")) for name in names]
    return _table(["copies", *heads], rows)


def identity(results: Path) -> str:
    """What different numbers of worker processes learned."""
    found = _one(results, "workers")["identity"]
    rows = [[number, f"`{digest[:16]}…`"] for number, digest in found["sha256"].items()]
    return _table(["workers", f"SHA-256 of model.safetensors after {found['steps']} steps"], rows)


TABLES: dict[str, Callable[[Path], str]] = {
    "updates": updates,
    "steps": steps,
    "shares": shares,
    "replay-time": replay_time,
    "replay-memory": replay_memory,
    "learning": learning,
    "workers": workers,
    "identity": identity,
}
"""What a page may ask for."""


def _one(results: Path, measurement: str) -> dict[str, Any]:
    file = results / f"{measurement}.json"
    if not file.exists():
        raise MissingError(measurement)
    figures: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return figures


def _named(results: Path, measurement: str) -> list[tuple[str, dict[str, Any]]]:
    files = sorted(results.glob(f"{measurement}*.json"))
    if not files:
        raise MissingError(measurement)
    return [(file.stem, json.loads(file.read_text("utf-8"))) for file in files]


def _all(results: Path, measurement: str) -> list[dict[str, Any]]:
    return [figures for _, figures in _named(results, measurement)]


def _source(figures: Mapping[str, Any]) -> str:
    """Day and commit; a plus sign says that the files differed from it."""
    version = str(figures["version"])
    return f"{figures['date']}, {version[:7]}{'+' if version.endswith('+') else ''}"


def _short(env_id: str) -> str:
    return env_id.rpartition(":")[2]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)
