"""The tables of what many trainings came to: ``ablation``, ``target_entropy`` and ``toys``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from cells import MissingError, difference, one, short, table

LABELS = {
    "base": "base: `n_step` 1, prioritised, no clipping",
    "n3_is": "`n_step` 3, V-trace",
    "n3_no_is": "`n_step` 3, uncorrected",
    "n5_is": "`n_step` 5, V-trace",
    "n5_no_is": "`n_step` 5, uncorrected",
    "no_per": "uniform replay",
    "clip_0.2": "`clip_epsilon` 0.2",
}
"""Variants of ``ablation`` in words; others are called by their own names."""


def compared(results: Path, *, sweep: str, task: str, head: str) -> str:
    """Every variant of a task beside the base.

    Raises MissingError where no run of the task is finished.
    """
    figures = one(results, sweep)
    variants = figures["summary"].get(task)
    if not variants:
        raise MissingError(sweep)
    order = [name for name in figures["settings"][task] if name in variants]
    rows = [[LABELS.get(name, name), *_cells(variants[name])] for name in order]
    base, threshold = figures["base"], figures["thresholds"][task]
    columns = [
        "last evaluation",
        "each seed",
        "mean height",
        f"− {base}",
        f"steps to {threshold:g}, each seed",
    ]
    return table([head, *columns], rows)


def _cells(found: Mapping[str, Any]) -> list[str]:
    against = found.get("against_base")
    return [
        f"{fmean(found['final']):.1f}",
        ", ".join(f"{value:.1f}" for value in found["final"]),
        f"{fmean(found['height']):.1f}",
        difference(against) if against else "",
        ", ".join("never" if steps is None else str(steps) for steps in found["reached"]),
    ]


def toys(results: Path) -> str:
    """The share of the optimum that each toy's policy reaches."""
    rows = []
    for task, variants in one(results, "toys")["summary"].items():
        for name, found in variants.items():
            shares = [value / found["optimum"] for value in found["final"]]
            rows.append(
                [
                    task if name == "default" else f"{task}, {name}",
                    short(found["env_id"]),
                    f"{found['optimum']:.3g}",
                    f"{found['chance']:.3g}",
                    f"{fmean(found['final']):.3f}",
                    f"{fmean(shares):.1%}",
                    ", ".join(f"{share:.1%}" for share in shares),
                ]
            )
    head = ["task", "environment", "optimum", "without looking", "last evaluation", "of the optimum"]
    return table([*head, "each seed"], rows)


TABLES: dict[str, Callable[[Path], str]] = {
    **{
        f"ablation-{task}": partial(compared, sweep="ablation", task=task, head="variant")
        for task in ("pendulum", "cart_pole")
    },
    **{
        f"target-entropy-{task}": partial(
            compared, sweep="target_entropy", task=task, head="`target_d_alpha`"
        )
        for task in ("cart_pole", "acrobot")
    },
    "toys": toys,
}
"""What a page may ask for."""


def together(results: Path, prefix: str) -> str:
    """Every table whose name begins so, under its name, as far as there are figures; for a terminal."""
    parts = []
    for name, make in TABLES.items():
        if name.startswith(prefix):
            try:
                parts.append(f"{name}\n\n{make(results)}")
            except MissingError:
                parts.append(f"{name}: nothing is finished yet")
    return "\n\n".join(parts)
