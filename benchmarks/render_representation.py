"""The tables of ``representation``: sections of a task beside one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from cells import MissingError, one, table

TASKS = ("catch", "hidden_catch")


def sections(results: Path, *, task: str) -> str:
    """When each section of a task was good enough, how good it became, and what that took."""
    figures = one(results, "representation")
    variants = figures["summary"].get(task)
    if not variants:
        raise MissingError("representation")
    head = [
        "section",
        f"steps to {figures['threshold']:g}, each seed",
        "mean height of the curve",
        f"− {figures['base']}",
        "last evaluation, each seed",
        "seconds",
    ]
    return table(head, [[f"`{name}`", *_cells(found)] for name, found in variants.items()])


def _cells(found: Mapping[str, Any]) -> list[str]:
    return [
        ", ".join("never" if steps is None else f"{steps:,}" for steps in found["reached"]),
        f"{fmean(found['height']):.2f}",
        _difference(found.get("against_base")),
        ", ".join(f"{value:.2f}" for value in found["final"]),
        f"{fmean(found['seconds']):.0f}",
    ]


def _difference(found: Mapping[str, Any] | None) -> str:
    """With two decimals, as returns between −1 and 1 need them; an interval where there are runs enough."""
    if found is None:
        return ""
    text = f"{found['difference']:+.2f}"
    if found["ci95"] is None:
        return text
    low, high = found["ci95"]
    return f"{text} [{low:+.2f}, {high:+.2f}], {found['verdict']}"


TABLES: dict[str, Callable[[Path], str]] = {
    f"representation-{task}": partial(sections, task=task) for task in TASKS
}
"""What a page may ask for."""
