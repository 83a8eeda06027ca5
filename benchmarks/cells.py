"""Parts of every table: the figures of result files, their origin, and Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


class Missing(Exception):  # noqa: N818 - a table that is not there yet is no error
    """There are no figures for a table; the argument is what ``make bench ONLY=…`` calls them."""


class Results:
    """A folder of result files, and which of them were read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: list[Mapping[str, Any]] = []

    def __getitem__(self, name: str) -> Any:
        """The figures of a question. Raises Missing."""
        file = self.folder / f"{name}.json"
        if not file.exists():
            raise Missing(name)
        figures = json.loads(file.read_text("utf-8"))
        self._read.append(figures)
        return figures

    def series(self, name: str) -> list[Any]:
        """Every file whose name begins so, the oldest first. Raises Missing."""
        files = sorted(self.folder.glob(f"{name}*.json"))
        if not files:
            raise Missing(name)
        return sorted((self[file.stem] for file in files), key=lambda figures: str(figures["date"]))

    def stored(self, name: str) -> str | None:
        """A table of a finished study, which stands in its result as it was made; None if there is none."""
        for file in sorted(self.folder.glob("*.json")):
            found = json.loads(file.read_text("utf-8")).get("tables", {}).get(name)
            if found:
                self[file.stem]  # it is a source
                return "\n\n".join([table(found["head"], found["rows"]), *found.get("below", [])])
        return None

    def source(self) -> str:
        """With what, when and on how busy a machine everything that was read has been measured."""
        versions = dict.fromkeys(commit for figures in self._read for commit in commits(figures))
        dates = sorted({str(figures["date"]) for figures in self._read})
        found = [f"Measured {', '.join(dates)} with {', '.join(f'`{one}`' for one in versions)}."]
        loads = [figures["load"] for figures in self._read if figures.get("load")]
        if len(self._read) == len(loads) == 1:
            found.append(f"Load of the machine before and after: {loads[0][0]:.1f}, {loads[0][1]:.1f}.")
        return " ".join(found)


def commits(figures: Mapping[str, Any]) -> list[str]:
    """Of our runs if figures are made of runs that say theirs; else of the measurement."""
    made = [one.get("runs", []) for one in (figures, *dict(figures.get("tasks", {})).values())]
    sides = [side for runs in made for side in (runs.values() if isinstance(runs, dict) else [runs])]
    named = ((row.get("library", row.get("side")), row["version"]) for side in sides for row in side)
    ours = {
        version for name, version in named if name not in ("stable-baselines3", "sb3", "sb3-contrib", "sbx")
    }
    return sorted({commit(one) for one in ours}) or [commit(figures["version"])]


def commit(version: str) -> str:
    """A commit in short; a plus sign: the files differed from it."""
    return f"{version[:7]}{'+' if version.endswith('+') else ''}"


def short(env_id: str) -> str:
    """An environment's id without its module."""
    return env_id.rpartition(":")[2]


def pick(row: Mapping[str, Any], *wanted: str) -> list[str]:
    """Values of a row as text; wanted: ``key:format``."""
    return [format(row[key], kind) for key, _, kind in (one.partition(":") for one in wanted)]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)
