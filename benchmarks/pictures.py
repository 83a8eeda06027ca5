"""The pictures of ``evidence``: one of every suite, and one of all of them for the pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from algorithm.app.report.charts import Line
from algorithm.extras.standings.aggregates import Runs, at_share, profile
from algorithm.extras.standings.standing import Plot, course_plots, standings, write_plots
from benchmarks.harness import RESULTS, ROOT
from benchmarks.standings import Evidence

IMAGES = ROOT / "docs" / "images"
_LEVELS = np.linspace(0.0, 1.5, 61)


def draw(evidence: Evidence, results: Path) -> None:
    """Draw the figures of a folder: beside them, those of the repository beside its pages."""
    folder = IMAGES if results == RESULTS else results
    every = []
    for suite in evidence.suites:
        if sides := evidence.sides(suite):
            curves = _curves(evidence, suite, sides)
            every.append(curves)
            write_plots(folder / f"evidence_{suite}.svg", [curves, _finals(evidence, suite, sides)])
    if every:
        write_plots(folder / "evidence.svg", every)


def _curves(evidence: Evidence, suite: str, sides: dict[str, Runs]) -> list[Plot]:
    over_steps, *rest = course_plots(sides, evidence.tones, suite, "score")
    points = {
        f"published: {label}": np.array(points, np.float64).T
        for label, points in evidence.suites[suite]["published"].items()
    }
    published = {label: (x, y) for label, (x, y) in points.items()}
    return [Plot(suite, over_steps.along, "score", over_steps.lines, published), *rest]


def _finals(evidence: Evidence, suite: str, sides: dict[str, Runs]) -> list[Plot]:
    first, lines = evidence.suites[suite]["first"], []
    for side, runs in sides.items():
        found = profile([at_share(of, of[0].step[-1]) for of in runs.values()], _LEVELS)
        band = found.low, found.high
        lines.append(Line(label=side, x=_LEVELS, y=found.value, tone=evidence.tones[side], band=band))
    plots = [Plot("at the end", "score", "share of runs above it", lines)]
    better = {one.name: one.better for one in standings(sides, first or "") if one.better is not None}
    if better:
        along = f"probability of improvement over {first}"
        plots.append(Plot("", along, "", bars=better, tones=evidence.tones))
    return plots
