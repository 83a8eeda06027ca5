"""Curves of a run, read from its metrics: lines and charts of a page, or a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from algorithm.agents import registry as families
from algorithm.app.report.charts import Chart, Line, write_picture
from algorithm.app.report.facts import Columns
from algorithm.core.console import panel
from algorithm.core.data import Double
from algorithm.core.wording import info_name
from algorithm.run.evaluation.statistics import INTERVAL, mean_interval
from algorithm.store.logs.registry import EVAL_INFOS, LESSONS, ROLLOUT_INFOS


@dataclass(frozen=True, kw_only=True)
class Series:
    """Curves of one run over environment steps; missing points are left out.

    eval_*:  mean return of each evaluation and the half width of its interval, [P].
    train_*: mean return of the training episodes, [Q].
    """

    label: str
    eval_step: Double
    eval_return: Double
    eval_ci95: Double
    train_step: Double
    train_return: Double


def series_of(columns: Mapping[str, Sequence[float]], label: str) -> Series:
    """Return the curves from the columns of one behaviour, which include ``step``."""
    step = np.asarray(columns["step"], np.float64)
    unknown = np.full_like(step, np.nan)
    mean, half, train = (
        np.asarray(columns.get(name, unknown), np.float64)
        for name in ("eval/return_mean", "eval/return_ci95", "rollout/return_mean")
    )
    evaluated, trained = np.isfinite(mean), np.isfinite(train)
    return Series(
        label=label,
        eval_step=step[evaluated],
        eval_return=mean[evaluated],
        eval_ci95=half[evaluated],
        train_step=step[trained],
        train_return=train[trained],
    )


def common_grid(series: Sequence[Series]) -> tuple[Double, Double]:
    """Interpolate evaluations of R runs at common steps; return steps [P] and returns [R, P].

    The steps are those of all runs within the range that every run covers; between its own evaluations a run
    is interpolated linearly. P is 0 if the ranges do not overlap or a run has no evaluation.
    """
    if any(not len(curves.eval_step) for curves in series):
        return np.zeros(0), np.zeros((len(series), 0))
    first = max(float(curves.eval_step[0]) for curves in series)
    last = min(float(curves.eval_step[-1]) for curves in series)
    steps = np.unique(np.concatenate([curves.eval_step for curves in series]))
    steps = steps[(steps >= first) & (steps <= last)]
    return steps, np.stack([np.interp(steps, curves.eval_step, curves.eval_return) for curves in series])


def run_lines(series: Series) -> list[Line]:
    """Return the lines of one run: evaluations with intervals, and faint training returns."""
    ends = (series.eval_return - series.eval_ci95, series.eval_return + series.eval_ci95)
    label = f"{series.label}, {INTERVAL} interval"
    return [
        Line(label=label, x=series.eval_step, y=series.eval_return, band=ends, dots=True),
        Line(label="training episodes", x=series.train_step, y=series.train_return, style="faint"),
    ]


def experiment_lines(series: Sequence[Series], label: str, *, tone: int = 0) -> list[Line]:
    """Return the lines of several runs: each one thin, their mean thick with its interval.

    The mean covers the steps that all runs cover; one run alone is its own mean, without an interval.
    """
    if not series:
        return []
    several = len(series) > 1
    runs = [
        Line(label="", x=curves.eval_step, y=curves.eval_return, style="run", tone=tone) for curves in series
    ]
    steps, returns = common_grid(series)
    return [*(runs if several else []), mean_line(label, steps, returns.T.tolist(), tone=tone)]


def mean_line(
    label: str, x: Double, samples: Sequence[Sequence[float]], *, tone: int = 0, dots: bool = False
) -> Line:
    """Return the means of the samples at each x, with Student's 95 % interval as in every table."""
    intervals = [mean_interval(values) for values in samples]
    mean, half = (
        np.array([getattr(interval, key) for interval in intervals]) for key in ("mean", "half_width")
    )
    return Line(label=label, x=x, y=mean, tone=tone, band=(mean - half, mean + half), dots=dots)


def plot_curve(path: Path, series: Series, *, title: str = "") -> None:
    """Write a PNG of return against environment steps; the same data give the same bytes.

    Raises StorageError where the file cannot be written.
    """
    write_picture(path, run_lines(series), title=title)


PANELS = (
    *families.panels(),
    panel("Gradient norm", log=True, norm="optim/grad_norm"),
    panel("Rates per second", steps="time/env_steps_per_s", updates="time/updates_per_s"),
    panel("Updates per step", achieved="time/replay_ratio"),
    panel("Replay rows", rows="replay/size"),
    panel("Resident memory, MB", memory="sys/rss_mb"),
)
"""Charts in the order of the page; one without data is left out."""


def diagnostics(columns: Columns, *, replay_ratio: float | None) -> list[Chart]:
    """Return the small charts of one behaviour that have data.

    replay_ratio: target of the updates per step, if there is one
    """
    step = np.asarray(columns["step"], np.float64)
    charts = _infos(columns, step)
    for template in PANELS:
        if lines := _lines(template.lines, columns, step):
            lines += _lines(template.aims, columns, step, style="aim")
            if "time/replay_ratio" in template.lines and replay_ratio is not None:
                lines.append(Line(label="target", x=step, y=np.full_like(step, replay_ratio), style="aim"))
            charts.append(Chart(template.title, lines, log=template.log))
    lessons = {name: name.removeprefix(LESSONS) for name in columns if name.startswith(LESSONS)}
    if lines := _lines(lessons, columns, step):
        charts.append(Chart("Lessons, from 0", lines))
    return charts + _faults(columns, step)


def _lines(names: Mapping[str, str], columns: Columns, step: Double, style: str = "line") -> list[Line]:
    """Return a line for each metric that has values; names: metric -> label."""
    values = {label: np.asarray(columns.get(metric, ()), np.float64) for metric, label in names.items()}
    known = {label: each for label, each in values.items() if np.isfinite(each).any()}
    return [
        Line(label=label, x=step, y=each, style=style, tone=tone)
        for tone, (label, each) in enumerate(known.items())
    ]


def _infos(columns: Columns, step: Double) -> list[Chart]:
    """Return a chart for each number from the environment's infos, in evaluations and in training."""
    places = {EVAL_INFOS: "evaluation", ROLLOUT_INFOS: "training"}
    keys = [name.removeprefix(part) for part in places for name in columns if name.startswith(part)]
    named = {key: {f"{part}{key}": where for part, where in places.items()} for key in dict.fromkeys(keys)}
    return [
        Chart(info_name(key).capitalize(), lines)
        for key, names in named.items()
        if (lines := _lines(names, columns, step))
    ]


def _faults(columns: Columns, step: Double) -> list[Chart]:
    """Return one chart of all kinds of faults that occurred."""
    kinds = [name for name in columns if name.startswith("fault/") or name == "optim/skipped"]
    occurred = {
        name: name.partition("/")[2].replace("_", " ")
        for name in kinds
        if (np.nan_to_num(np.asarray(columns[name], np.float64)) > 0).any()
    }
    return [Chart("Faults survived", _lines(occurred, columns, step))] if occurred else []
