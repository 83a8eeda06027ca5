"""Summaries of ``evidence``: scores of every side on every suite, and when a level is reached."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from algorithm.core.data import Double
from algorithm.core.wording import short
from algorithm.store.files import write_text
from benchmarks.aggregates import Curve, Estimate, Runs, estimate

HEAD = ("exp_name", "env_name", "seed", "metric", "env_step", "value", "core_seconds")
"""Columns of the table, but for the last one those that the field exchanges."""

METRIC = "avg_return"
Key = tuple[str, str, int]  # side, task, seed
Point = tuple[int, float, float]  # step, mean return, CPU seconds
_NEVER = 1e12  # CPU seconds; between infinite ones nothing can be interpolated
_LONGEST = 1e6


def read_points(file: Path) -> dict[Key, list[Point]]:
    """The evaluations of every run in a table of :data:`HEAD`, by side, task and seed."""
    found: dict[Key, list[Point]] = {}
    with file.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            key = row["exp_name"], row["env_name"], int(row["seed"])
            point = int(row["env_step"]), float(row["value"]), float(row["core_seconds"])
            found.setdefault(key, []).append(point)
    return found


def write_points(file: Path, found: Mapping[Key, Sequence[Point]]) -> None:
    """Write what :func:`read_points` reads, as a whole or not at all."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(HEAD)
    for (side, task, seed), points in sorted(found.items()):
        table.writerows(
            [side, task, seed, METRIC, step, f"{mean:.6g}", f"{core:.6g}"] for step, mean, core in points
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, text.getvalue())


class Evidence:
    """The two files of ``evidence`` together.

    content: of the JSON file · found: the evaluations of every run
    """

    def __init__(self, content: Mapping[str, Any], found: Mapping[Key, Sequence[Point]]) -> None:
        self.content, self._found = content, found
        self.suites: Mapping[str, Any] = content["suites"]
        sides = dict.fromkeys(side for suite in self.suites.values() for side in suite["planned"])
        self.tones = {side: tone for tone, side in enumerate(sides)}

    @classmethod
    def read(cls, folder: Path) -> Evidence:
        """Read what ``python -m benchmarks evidence`` has written there."""
        content = json.loads((folder / "evidence.json").read_text("utf-8"))
        return cls(content, read_points(folder / "evidence.csv"))

    def tasks(self, suite: str) -> list[str]:
        """Tasks of a suite of which anything is known."""
        return [name for name, task in self.content["tasks"].items() if task["suite"] == suite]

    def returns(self, task: str, side: str) -> list[Curve]:
        """The curves of a side's runs of a task, as returns."""
        runs = [
            np.array(points, np.float64).T
            for (of, name, _), points in self._found.items()
            if (of, name) == (side, task)
        ]
        return [Curve(*columns) for columns in runs]

    def ends(self, suite: str, task: str) -> tuple[float, float] | None:
        """The returns that are scores 0 and 1; None where no side is above the random policy.

        1 is what the plan says, else the mean of the last evaluations of the first peer, or of the best side
        where there is no peer.
        """
        about, first = self.content["tasks"][task], self.suites[suite]["first"]
        zero = about["zero"]
        finals = {side: _final(runs) for side in self.tones if (runs := self.returns(task, side))}
        one = (
            about["one"]
            if about["one"] is not None
            else finals.get(first, max(finals.values(), default=zero))
        )
        return (zero, one) if one > zero else None

    def sides(self, suite: str) -> dict[str, Runs]:
        """Scores of every side of a suite with finished runs, on the tasks of which all such sides have some.

        A curve begins with the random policy.
        """
        found: dict[str, dict[str, list[Curve]]] = {}
        for task in self.tasks(suite):
            if (ends := self.ends(suite, task)) is None:
                continue
            zero, one = ends
            for side in self.suites[suite]["planned"]:
                for run in self.returns(task, side):
                    score = (run.score - zero) / (one - zero)
                    begun = [np.concatenate([[0.0], of]) for of in (run.step, score, run.core)]
                    found.setdefault(side, {}).setdefault(task, []).append(Curve(*begun))
        common = set[str].intersection(*map(set, found.values())) if found else set()
        return {side: {task: runs[task] for task in runs if task in common} for side, runs in found.items()}

    def cells(self, suite: str, side: str) -> str:
        """How many of the planned trainings are finished, and what became of others."""
        rows = [row for row in self.content["runs"] if (row["suite"], row["side"]) == (suite, side)]
        failed, planned = sum(row["state"] == "failed" for row in rows), self.suites[suite]["planned"][side]
        parts = [f"{len(rows) - failed} of {planned}"]
        if failed:
            parts.append(f"{failed} failed")
        if side in self.content["left_out"] and len(rows) < planned:
            parts.append("left out")
        return "; ".join(parts)


def _final(runs: Sequence[Curve]) -> float:
    return fmean(float(run.score[-1]) for run in runs)


GOALS = {"95 % of it": (0.95, 1), "all of it": (1.0, 1), "for good": (1.0, 2)}
"""Goal → part of the way from the random policy to the first peer's last mean; evaluations in a row.

Each run is evaluated on starts of its own, so a task that is solved may never quite give the mean of others.
"""


@dataclass(frozen=True)
class Reached:
    """When a side first has what the first peer has at its end, for each of :data:`GOALS`.

    minutes: median over runs of the core-minutes · counts: runs that reach it, of ``runs``
    shares:  of the peer's core-minutes for all of its training
    """

    task: str
    side: str
    runs: int
    minutes: Sequence[float]
    counts: Sequence[int]
    shares: Sequence[Estimate]


def first_reached(curve: Curve, level: float, *, running: int = 1) -> float:
    """Return the CPU seconds of the first of ``running`` evaluations in a row at ``level``; inf for none."""
    reached = (curve.score >= level).astype(int)
    streak = np.convolve(reached, np.ones(running, int), "valid") if len(reached) >= running else reached[:0]
    at = np.flatnonzero(streak == running)
    return float(curve.core[at[0]]) if len(at) else math.inf


def reached(evidence: Evidence, suite: str) -> list[Reached]:
    """Return that of every task and side of a suite; nothing without runs of the first peer."""
    first, found = evidence.suites[suite]["first"], []
    for task in evidence.tasks(suite):
        peer = evidence.returns(task, first)
        if not peer:
            continue
        zero = evidence.content["tasks"][task]["zero"]
        way, budget = _final(peer) - zero, fmean(float(run.core[-1]) for run in peer)
        for side in evidence.suites[suite]["planned"]:
            runs = evidence.returns(task, side)
            if not runs:
                continue
            times = [
                np.array([first_reached(run, zero + part * way, running=row) for run in runs])
                for part, row in GOALS.values()
            ]
            known = [np.minimum(of, _NEVER) for of in times]
            minutes = [float(np.median(of)) / 60 for of in known]
            shares = [estimate([of[:, None] / budget], _median) for of in known]
            counts = [int(np.isfinite(of).sum()) for of in times]
            found.append(Reached(task, side, len(runs), minutes, counts, shares))
    return found


def _median(values: Double) -> Double:
    middle: Double = np.median(values, axis=-1)
    return middle


def or_never(value: float) -> str:
    """A median of times or of shares; between a time and never it is never."""
    return short(value) if value < _LONGEST else "never"
