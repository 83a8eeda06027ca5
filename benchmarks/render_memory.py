"""The tables of memory: ``hidden``, ``delays`` and ``memory``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from cells import MissingError, one, table

CASES = {
    "gru": "GRU, 64 units",
    "lstm": "LSTM, 64 units",
    "attn": "attention, 2 layers of 32, 4 heads",
    "gru_long": "GRU, 128 units, as wide networks behind it",
}
"""Sections of ``memory/config.yaml`` in words."""

ENVS = {"pendulum": "Pendulum-v1", "cart_pole": "CartPole-v1"}


def hidden(results: Path, *, task: str) -> str:
    """Every section beside the one that sees everything, which may have more steps, and the picture."""
    figures = one(results, "hidden")
    variants, threshold = figures["summary"].get(task), figures["thresholds"][task]
    if not variants:
        raise MissingError("hidden")
    steps = {row["variant"]: row["curve"][-1][0] for row in figures["runs"] if row["task"] == task}
    rows = [
        [
            name,
            f"{steps[name]:,}",
            f"{fmean(found['final']):.1f}",
            ", ".join(f"{value:.1f}" for value in found["final"]),
            ", ".join("never" if first is None else str(first) for first in found["reached"]),
        ]
        for name, found in variants.items()
    ]
    head = ["section", "steps", "last evaluation", "each seed", f"steps to {threshold:g}, each seed"]
    found = table(head, rows)
    alt = f"Evaluation return over environment steps on {ENVS[task]} with hidden velocities"
    return f"{found}\n\n![{alt}](images/hidden_{task}.png)"


def delays(results: Path) -> str:
    """Last evaluations of every delay with every memory, and the longest delay that is solved."""
    found = one(results, "delays")
    names = list(found["longest"])
    rows = [
        [delay, *(cell for name in names for cell in _delay_cells(of.get(name)))]
        for delay, of in found["summary"].items()
    ]
    share = f"{found['solved']:.0%}".replace("%", " %")
    columns = [text for name in names for text in (f"`{name}`: last evaluation", f"steps to {share}")]
    steps = max(row["curve"][-1][0] for row in found["runs"])
    best = ", ".join(f"`{name}` {delay or 'none'}" for name, delay in found["longest"].items())
    told = (
        f"{steps:,} environment steps each. The optimum is {found['optimum']:g}, without memory "
        f"{found['chance']:g}. Longest delay solved, the last evaluation at {share} of the optimum or more: "
        f"{best}."
    )
    return f"{table(['delay', *columns], rows)}\n\n{told}"


def _delay_cells(found: Mapping[str, Sequence[Any]] | None) -> list[str]:
    if found is None:
        return ["not run", "not run"]
    reached = ", ".join("never" if steps is None else str(steps) for steps in found["reached"])
    return [f"{fmean(found['final']):.2f}", reached]


def speed(results: Path) -> str:
    """Updates per second and CPU-seconds of an update, for every case."""
    rows = []
    for name, case in one(results, "memory")["cases"].items():
        window = case["window"]
        cells = [str(window[part]) for part in ("batch", "burn_in", "learn", "n")]
        cells += [f"{case['updates_per_second']:.1f}", f"{case['cpu_seconds']:.3f}"]
        rows.append([CASES[name], *cells, f"{case['parameters']:,}"])
    head = ["memory", "windows", "burn-in", "learned", "n", "updates/s", "CPU-seconds an update"]
    return table([*head, "trained weights"], rows)


def profile(results: Path) -> str:
    """Milliseconds of an update by its parts; and how many tokens there are, and were encoded."""
    cases = one(results, "memory")["cases"]
    first = next(iter(cases.values()))
    times = [[CASES[name], *(f"{ms:.1f}" for ms in case["ms"].values())] for name, case in cases.items()]
    tokens = [[CASES[name], *(f"{n:,g}" for n in case["tokens"].values())] for name, case in cases.items()]
    heads = [["ms an update", *first["ms"]], ["tokens an update", *first["tokens"]]]
    return "\n\n".join(table(head, rows) for head, rows in zip(heads, (times, tokens), strict=True))


TABLES: dict[str, Callable[[Path], str]] = {
    **{f"hidden-{task}": partial(hidden, task=task) for task in ENVS},
    "delays": delays,
    "memory-speed": speed,
    "memory-profile": profile,
}
"""What a page may ask for."""
