"""Charts of a report, and the metrics that each of them shows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from algorithm.agents import registry as families
from algorithm.app.report.charts import Chart, Line
from algorithm.app.report.curves import run_lines, series_of
from algorithm.app.report.facts import Columns
from algorithm.core.data import Double
from algorithm.core.panels import panel

PANELS = (
    *families.panels(),
    panel("Gradient norm", log=True, norm="optim/grad_norm"),
    panel("Rates per second", steps="time/env_steps_per_s", updates="time/updates_per_s"),
    panel("Updates per step", achieved="time/replay_ratio"),
    panel("Replay rows", rows="replay/size"),
    panel("Resident memory, MB", memory="sys/rss_mb"),
)
"""Charts in the order of the page; one without data is left out."""


def learning_curve(columns: Columns) -> Chart:
    """Return the chart of a run's evaluations and training returns."""
    return Chart("Return over environment steps", run_lines(series_of(columns, "evaluation")), large=True)


def diagnostics(columns: Columns, *, replay_ratio: float | None) -> list[Chart]:
    """Return the small charts of one behaviour that have data.

    replay_ratio: target of the updates per step, if there is one
    """
    step = np.asarray(columns["step"], np.float64)
    charts = []
    for one in PANELS:
        lines = _lines(one.lines, columns, step)
        if not lines:
            continue
        lines += _lines(one.aims, columns, step, style="aim")
        if "time/replay_ratio" in one.lines and replay_ratio is not None:
            lines.append(Line(label="target", x=step, y=np.full_like(step, replay_ratio), style="aim"))
        charts.append(Chart(one.title, lines, log=one.log))
    return charts + _faults(columns, step)


def _lines(names: Mapping[str, str], columns: Columns, step: Double, style: str = "line") -> list[Line]:
    values = {label: np.asarray(columns.get(metric, ()), np.float64) for metric, label in names.items()}
    known = {label: each for label, each in values.items() if np.isfinite(each).any()}
    return [
        Line(label=label, x=step, y=each, style=style, tone=tone)
        for tone, (label, each) in enumerate(known.items())
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
