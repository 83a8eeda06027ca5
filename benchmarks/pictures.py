"""The pictures of ``evidence``: one of every suite, and one of all of them for the pages."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from algorithm.app.report.charts import Line, themed_figure
from algorithm.app.report.theme import DARK, LIGHT
from algorithm.core.data import Double
from algorithm.store.files import write_text
from benchmarks.aggregates import Estimate, Runs, at_share, profile
from benchmarks.harness import RESULTS, ROOT
from benchmarks.sides import Plot, course_plots, draw_grid, figure_options, standings
from benchmarks.standings import Evidence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IMAGES = ROOT / "docs" / "images"
_LEVELS = np.linspace(0.0, 1.5, 61)
_FONT = "font-family: 'DejaVu Sans'", "font-family: 'DejaVu Sans', Verdana, sans-serif"


@dataclass(frozen=True)
class EvidencePlot(Plot):
    """A plot with published results, or with bars.

    points: label -> x and y of published results, drawn as crosses
    bars:   label -> estimate of one number, drawn as a horizontal bar
    tones:  label of a bar -> number of its colour
    """

    points: Mapping[str, tuple[Double, Double]] = field(default_factory=dict)
    bars: Mapping[str, Estimate] = field(default_factory=dict)
    tones: Mapping[str, int] = field(default_factory=dict)

    @override
    def draw(self, axes: Axes) -> None:
        super().draw(axes)
        for cross, (label, (x, y)) in zip(cycle("x+12"), self.points.items(), strict=False):
            axes.plot(x, y, cross, color=LIGHT["ink"], label=label, markersize=7, zorder=4, clip_on=False)
        for row, (label, bar) in enumerate(reversed([*self.bars.items()])):
            colour = LIGHT[f"c{self.tones[label]}"]
            axes.plot([bar.low[0], bar.high[0]], [row, row], color=colour, linewidth=3)
            axes.plot(bar.value, [row], "o", color=colour)
            right = bar.value[0] > 0.5
            edge = float((bar.high if right else bar.low)[0])
            axes.text(
                edge, row + 0.2, label, ha="right" if right else "left", color=LIGHT["ink"], fontsize=10
            )
        if self.bars:
            axes.set(xlim=(0, 1), ylim=(-0.5, len(self.bars)), yticks=[])
            axes.axvline(0.5, color=LIGHT["faint"], linewidth=0.8)


def draw(evidence: Evidence, results: Path) -> None:
    """Draw the figures of a folder: beside them, those of the repository beside its pages."""
    folder = IMAGES if results == RESULTS else results
    every = []
    for suite in evidence.suites:
        if sides := evidence.sides(suite):
            curves = _curves(evidence, suite, sides)
            every.append(curves)
            write_svg(folder / f"evidence_{suite}.svg", [curves, _finals(evidence, suite, sides)])
    if every:
        write_svg(folder / "evidence.svg", every)


def _curves(evidence: Evidence, suite: str, sides: dict[str, Runs]) -> list[Plot]:
    over_steps, *rest = course_plots(sides, evidence.tones, suite, "score")
    points = {
        f"published: {label}": np.array(points, np.float64).T
        for label, points in evidence.suites[suite]["published"].items()
    }
    published = {label: (x, y) for label, (x, y) in points.items()}
    return [EvidencePlot(suite, over_steps.along, "score", over_steps.lines, published), *rest]


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
        plots.append(EvidencePlot("", along, "", bars=better, tones=evidence.tones))
    return plots


def write_svg(path: Path, grid: Sequence[Sequence[Plot]]) -> None:
    """Write rows of plots as an SVG for light and dark pages; the same data give the same bytes."""
    text = io.StringIO()
    with themed_figure(**figure_options(len(grid), max(map(len, grid)))) as figure:
        draw_grid(figure, grid)
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    write_text(path, _themed(text.getvalue()))


def _themed(svg: str) -> str:
    """Return an SVG whose colours follow the page's light or dark theme."""
    for name, colour in LIGHT.items():
        svg = svg.replace(colour, f"var(--{name})")
    light, dark = ("".join(f"--{name}:{colour};" for name, colour in of.items()) for of in (LIGHT, DARK))
    style = f"<style>:root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    start = svg.index(">", svg.index("<svg ")) + 1
    return f"{svg[:start]}{style}{svg[start:].replace(*_FONT)}"
