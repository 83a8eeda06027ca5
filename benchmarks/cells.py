"""What every table is made of: the figures of a result file, and Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


class MissingError(Exception):
    """There are no figures for a table; the argument is what ``make bench ONLY=…`` calls them."""


def one(results: Path, measurement: str) -> dict[str, Any]:
    """The figures of a measurement. Raises MissingError."""
    file = results / f"{measurement}.json"
    if not file.exists():
        raise MissingError(measurement)
    figures: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return figures


def named(results: Path, measurement: str) -> list[tuple[str, dict[str, Any]]]:
    """Every file of a measurement that keeps several: (name, figures). Raises MissingError."""
    files = sorted(results.glob(f"{measurement}*.json"))
    if not files:
        raise MissingError(measurement)
    return [(file.stem, json.loads(file.read_text("utf-8"))) for file in files]


def every(results: Path, measurement: str) -> list[dict[str, Any]]:
    """The same without the names."""
    return [figures for _, figures in named(results, measurement)]


def source(figures: Mapping[str, Any]) -> str:
    """Day and commit; a plus sign says that the files differed from it."""
    version = str(figures["version"])
    return f"{figures['date']}, {version[:7]}{'+' if version.endswith('+') else ''}"


def short(env_id: str) -> str:
    """An environment's id without its module."""
    return env_id.rpartition(":")[2]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


def difference(found: Mapping[str, Any]) -> str:
    """A difference, and its interval and verdict where there were runs enough for one."""
    text = f"{found['difference']:+.1f}"
    if found["ci95"] is None:
        return text
    low, high = found["ci95"]
    return f"{text} [{low:+.1f}, {high:+.1f}], {found['verdict']}"
