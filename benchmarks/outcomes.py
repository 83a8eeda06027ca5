"""What the runs of a sweep came to: a row for each, kept in one file, and the comparison of variants."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from interval import bootstrap_difference
from jobs import Job
from runs import Run, mean_height

Row = dict[str, Any]
"""A run as the result file holds it: task, variant, seed, version, seconds and curve."""

Settings = dict[str, dict[str, dict[str, Any]]]
"""Task → variant → every key that is not the default."""


def row_of(job: Job, run: Run) -> Row:
    """A run's row."""
    key = {"task": job.task, "variant": job.variant, "seed": job.seed}
    return {**key, "version": run.version, "seconds": run.seconds, "curve": run.curve}


class Outcomes:
    """The rows of a sweep: new ones, and those of an earlier result file whose settings are still the same.

    So figures of slices that were run on other days or machines stay when one slice is run again.
    """

    def __init__(self, jobs: Sequence[Job], file: Path) -> None:
        self._order = [_key(job) for job in jobs]
        self.settings: Settings = {}
        for job in jobs:
            variants = self.settings.setdefault(job.task, {})
            if job.variant not in variants:  # seeds do not differ in them
                variants[job.variant] = json.loads(json.dumps(job.settings))
        self._rows: dict[tuple[str, str, int], Row] = {}
        self._added: set[tuple[str, str, int]] = set()
        if file.exists():
            self._keep(json.loads(file.read_text("utf-8")))

    def add(self, job: Job, run: Run) -> None:
        """Take a finished run; it replaces an earlier one of the same task, variant and seed."""
        self._rows[_key(job)] = row_of(job, run)
        self._added.add(_key(job))

    def __contains__(self, job: Job) -> bool:
        """Whether ``add`` took its run; a row of an earlier file may be replaced yet."""
        return _key(job) in self._added

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of the sweep; seeds that it does not name come last."""
        place = {key: number for number, key in enumerate(self._order)}
        return [self._rows[key] for key in sorted(self._rows, key=lambda key: place.get(key, len(place)))]

    def _keep(self, earlier: Mapping[str, Any]) -> None:
        dropped = 0
        for row in earlier["runs"]:
            task, variant = row["task"], row["variant"]
            wanted = self.settings.get(task, {}).get(variant)
            if wanted is not None and wanted == earlier["settings"][task][variant]:
                self._rows[task, variant, row["seed"]] = row
            else:
                dropped += 1
        if dropped:
            print(f"note: {dropped} earlier runs had other settings and are left out", file=sys.stderr)


def _key(job: Job) -> tuple[str, str, int]:
    return job.task, job.variant, job.seed


def summarise(rows: Sequence[Row], thresholds: Mapping[str, float], base: str) -> dict[str, Any]:
    """Task → variant → final returns, mean heights and steps to the threshold, and how far base is.

    thresholds: task → return that counts as solved; ``base``: the variant that the others are compared with.
    Runs of a task are in the order of their seeds; null stands for a threshold that was not reached and for
    an interval that one run a side does not give.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        one = found.setdefault(row["task"], {}).setdefault(
            row["variant"], {"seeds": [], "final": [], "height": [], "reached": []}
        )
        one["seeds"].append(row["seed"])
        one["final"].append(row["curve"][-1][1])
        one["height"].append(mean_height(row["curve"]))
        one["reached"].append(steps_to(row["curve"], thresholds[row["task"]]))
    for variants in found.values():
        for name, one in variants.items():
            if name != base and base in variants:
                one["against_base"] = _against(one["height"], variants[base]["height"])
    return found


def steps_to(curve: Sequence[Sequence[float]], threshold: float) -> int | None:
    """Environment steps of the first evaluation whose mean is at the threshold or above; None if none is."""
    return next((int(step) for step, mean in curve if mean >= threshold), None)


def _against(heights: Sequence[float], base: Sequence[float]) -> dict[str, Any]:
    if min(len(heights), len(base)) < 2:
        return {"difference": fmean(heights) - fmean(base), "ci95": None, "verdict": None}
    found = bootstrap_difference(heights, base)
    return {"difference": found.mean, "ci95": [found.low, found.high], "verdict": found.verdict}
