"""Comparison of sides (sets of runs), over environment steps and core-minutes: lines, picture and table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from algorithm.app.report.charts import Line, draw
from algorithm.core.data import Double
from algorithm.core.wording import short, steps_text
from benchmarks.aggregates import (
    Curve,
    Estimate,
    Runs,
    at_share,
    course,
    estimate,
    improvement,
    last_common,
    measured,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = {"step": "environment steps", "core": "core-minutes"}
"""The two horizontal axes."""

_MINUTE = 60.0


@dataclass(frozen=True)
class Standing:
    """Results of a side.

    final:  interquartile mean at the end of the tasks, with interval; NaN if a run was not evaluated there
    half:   interquartile mean at half of the steps
    core_minutes: mean over runs at the end; NaN if unknown for a run
    better: probability of improvement over the first side, on tasks where all runs of both were evaluated at
            the end; None for the first side, and without such a task
    """

    name: str
    final: Estimate
    half: float
    core_minutes: float
    better: Estimate | None


def standings(sides: Mapping[str, Runs], first: str) -> list[Standing]:
    """Return the results of each side. A task ends at the last step at which all of its runs were evaluated.

    first: name of the side that the others are compared with; it may be missing
    """
    every: dict[str, list[Curve]] = {}
    for task, of in (each for runs in sides.values() for each in runs.items()):
        every.setdefault(task, []).extend(of)
    ends = {task: last_common(of) for task, of in every.items() if of}
    results = []
    for name, tasks in sides.items():
        runs = {task: of for task, of in tasks.items() if of}
        if not runs:
            continue
        final = _estimate([measured(of, ends[task]) for task, of in runs.items()])
        half = _estimate([at_share(of, ends[task], 0.5) for task, of in runs.items()])
        cores = [np.interp(ends[task], run.step, run.core) for task, of in runs.items() for run in of]
        shared = [task for task in runs if name != first and sides.get(first, {}).get(task)]
        pairs = [tuple(measured(side[task], ends[task]) for side in (runs, sides[first])) for task in shared]
        both = [pair for pair in pairs if np.isfinite(np.concatenate(pair)).all()]
        better = improvement(*zip(*both, strict=True)) if both else None
        minutes = float(np.mean(cores)) / _MINUTE
        results.append(Standing(name, final, float(half.value[0]), minutes, better))
    return results


def _estimate(strata: Sequence[Double]) -> Estimate:
    """Return the interquartile mean of the runs of all tasks; NaN where one of them was not evaluated."""
    if not np.isfinite(np.concatenate(strata)).all():
        return Estimate(*[np.array([np.nan])] * 3)
    return estimate([scores[:, None] for scores in strata])


def rows(sides: Sequence[Standing]) -> list[list[str]]:
    """Return the row of each side: name, final, core-minutes, half, better."""
    return [
        [
            side.name,
            interval_text(side.final),
            short(side.core_minutes) if np.isfinite(side.core_minutes) else "unknown",
            short(side.half) if np.isfinite(side.half) else "unknown",
            "" if side.better is None else interval_text(side.better),
        ]
        for side in sides
    ]


def head(first: str) -> list[str]:
    """Return the names of the columns of :func:`rows`."""
    better = f"P(improvement) over {first}"
    return ["", "IQM at the end [95 %]", "core-minutes a run", "IQM at half", better]


def interval_text(estimated: Estimate) -> str:
    """Return an estimate of one number as text: ``0.61 [0.42, 0.83]``, or ``unknown``."""
    if not np.isfinite(estimated.value[0]):
        return "unknown"
    value, low, high = (short(float(x[0])) for x in (estimated.value, estimated.low, estimated.high))
    return f"{value} [{low}, {high}]"


@dataclass(frozen=True)
class Plot:
    """A plot in a picture.

    along, scale: labels of the x and y axes
    lines: thick with interval for a side, thin for its runs
    """

    title: str
    along: str
    scale: str
    lines: Sequence[Line] = ()

    def draw(self, axes: Axes) -> None:
        """Draw lines, title and labels into the axes."""
        from matplotlib.ticker import FuncFormatter

        draw(axes, self.lines, ticks=(6, 6), marker="o")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: steps_text(x)))
        axes.set_title(self.title, loc="left", fontsize=12, fontweight="bold")
        axes.set_xlabel(self.along)
        axes.set_ylabel(self.scale)


def side_lines(sides: Mapping[str, Runs], axis: str, tones: Mapping[str, int]) -> list[Line]:
    """Return the lines of the sides over ``step`` or ``core``: runs thin, the interquartile mean thick.

    tones: side -> number of its colour
    """
    thick, thin = [], []
    for name, runs in sides.items():
        if (curve := course(runs, axis)) is None:
            continue
        x, mean = curve
        tone, scale = tones[name], _MINUTE if axis == "core" else 1.0
        thick.append(Line(label=name, x=x / scale, y=mean.value, tone=tone, band=(mean.low, mean.high)))
        thin += [
            Line(label="", x=getattr(run, axis) / scale, y=run.score, style="crowd", tone=tone)
            for of in runs.values()
            for run in of
        ]
    return [*thin, *thick]


def course_plots(
    sides: Mapping[str, Runs], tones: Mapping[str, int], title: str = "", scale: str = "return"
) -> list[Plot]:
    """Return a plot for each of :data:`AXES` on which a side has values."""
    drawn = [Plot(title, along, scale, side_lines(sides, axis, tones)) for axis, along in AXES.items()]
    return [plot for plot in drawn if plot.lines]


def figure_options(rows: int, columns: int) -> dict[str, Any]:
    """Return the options of a figure with a grid of plots and a legend."""
    return {"figsize": (4.6 * columns, 3.2 * rows + 0.5), "dpi": 150, "layout": "constrained"}


def draw_grid(figure: Figure, grid: Sequence[Sequence[Plot]]) -> None:
    """Draw rows of plots into a figure, with one legend above all."""
    columns = max(map(len, grid))
    axes = figure.subplots(len(grid), columns, squeeze=False)
    names: dict[str, Artist] = {}
    for plots, places in zip(grid, axes, strict=True):
        for plot, place in zip_longest(plots, places):
            if plot is None:
                place.set_axis_off()
                continue
            plot.draw(place)
            names |= {label: line for line, label in zip(*place.get_legend_handles_labels(), strict=True)}
    columns = min(4, len(names) or 1)
    figure.legend(list(names.values()), list(names), loc="outside upper left", ncols=columns)
