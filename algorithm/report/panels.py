"""Which charts a report shows, and of which metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from algorithm.report.curves import series_of
from algorithm.report.facts import Columns
from algorithm.report.html import Markup, tag
from algorithm.report.svg import Line, figure, large_figure

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """One small chart.

    lines: metric -> its name in the chart
    aims:  the same for what the lines are steered to, drawn dashed
    log:   logarithmic where the values span enough
    """

    title: str
    lines: Mapping[str, str]
    aims: Mapping[str, str]
    log: bool = False


def _panel(title: str, *, log: bool = False, aims: Mapping[str, str] | None = None, **lines: str) -> Panel:
    """lines: name in the chart -> metric."""
    named = {metric: name.replace("_", " ") for name, metric in lines.items()}
    return Panel(title, named, aims or {}, log)


PANELS = (
    _panel("Values", critics="value/q_mean", target="value/target"),
    _panel("Critic loss", log=True, loss="loss/q"),
    _panel("Policy loss", loss="loss/policy"),
    _panel("Entropy, discrete", entropy="policy/entropy_d", aims={"policy/target_entropy_d": "target"}),
    _panel("Entropy, continuous", entropy="policy/entropy_c", aims={"policy/target_entropy_c": "target"}),
    _panel("Temperature", log=True, discrete="policy/alpha_d", continuous="policy/alpha_c"),
    _panel("Temperature loss", loss="loss/alpha"),
    _panel("Share of actions at their bounds", share="policy/saturation"),
    _panel("Gradient norm", log=True, norm="optim/grad_norm"),
    _panel("Rates per second", steps="time/env_steps_per_s", updates="time/updates_per_s"),
    _panel("Updates per step", achieved="time/replay_ratio"),
    _panel("Replay rows", rows="replay/size"),
    _panel("Resident memory, MB", memory="sys/rss_mb"),
)
"""In the order of the page; one without data is left out."""


def learning_curve(columns: Columns) -> Markup:
    """Evaluations with their intervals; the returns of training faint behind them."""
    series = series_of(columns, "evaluation")
    ends = (series.eval_return - series.eval_ci95, series.eval_return + series.eval_ci95)
    training = Line(label="training episodes", x=series.train_step, y=series.train_return, style="faint")
    evaluation = Line(
        label="evaluation, 95 % interval",
        x=series.eval_step,
        y=series.eval_return,
        band=ends,
        dots=True,
    )
    return large_figure("Return over environment steps", [training, evaluation])


def diagnostics(columns: Columns, *, replay_ratio: float | None) -> Markup | None:
    """The small charts of one behaviour; None if there is nothing to show.

    replay_ratio: what the updates per step are to be, if they are to be anything
    """
    step = np.asarray(columns["step"], np.float64)
    drawn = []
    for panel in PANELS:
        lines = _lines(panel.lines, columns, step, ("line t0", "line t1"))
        if not lines:
            continue
        lines += _lines(panel.aims, columns, step, ("aim",))
        if "time/replay_ratio" in panel.lines and replay_ratio is not None:
            lines.append(Line(label="target", x=step, y=np.full_like(step, replay_ratio), style="aim"))
        drawn.append(figure(panel.title, lines, log=panel.log))
    drawn += _faults(columns, step)
    return tag("div", *drawn, class_="charts") if drawn else None


def _lines(names: Mapping[str, str], columns: Columns, step: Array, styles: Sequence[str]) -> list[Line]:
    values = {label: np.asarray(columns.get(metric, ()), np.float64) for metric, label in names.items()}
    known = {label: each for label, each in values.items() if np.isfinite(each).any()}
    return [
        Line(label=label, x=step, y=each, style=style)
        for (label, each), style in zip(known.items(), styles, strict=False)
    ]


def _faults(columns: Columns, step: Array) -> list[Markup]:
    """Counts of what went wrong; one chart for all kinds that ever did."""
    kinds = [name for name in columns if name.startswith("fault/") or name == "optim/skipped"]
    counts = {name: np.asarray(columns[name], np.float64) for name in kinds}
    lines = [
        Line(label=name.partition("/")[2].replace("_", " "), x=step, y=values, style=f"line t{k % 6}")
        for k, (name, values) in enumerate(counts.items())
        if (np.nan_to_num(values) > 0).any()
    ]
    return [figure("Faults survived", lines)] if lines else []
