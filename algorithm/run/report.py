"""Learning curves as pictures, and the summary of repeated runs. Matplotlib is imported when it is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from algorithm.errors import StorageError
from algorithm.run.metrics import read_metrics
from algorithm.run.statistics import bootstrap_band, mean_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE = "#1f6fb4"
_GREY = "#9aa4ad"
_INK = "#30363c"
_BAND = "95 % interval of the mean"
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.edgecolor": _GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e8eb",
    "axes.axisbelow": True,
    "legend.frameon": False,
}

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Series:
    """The curves of one run over environment steps; points that were not measured are left out.

    eval_*:  mean return of each evaluation and the half width of its 95 % interval, [P].
    train_*: mean return of the training episodes, [Q].
    """

    label: str
    eval_step: Array
    eval_return: Array
    eval_ci95: Array
    train_step: Array
    train_return: Array


def read_series(path: Path, label: str) -> Series:
    """The curves in a ``metrics.csv``. Raises StorageError."""
    columns = {name: np.asarray(values, np.float64) for name, values in read_metrics(path).items()}
    step = columns["step"]
    unknown = np.full_like(step, np.nan)
    mean = columns.get("eval/return_mean", unknown)
    train = columns.get("rollout/return_mean", unknown)
    evaluated, trained = np.isfinite(mean), np.isfinite(train)
    return Series(
        label=label,
        eval_step=step[evaluated],
        eval_return=mean[evaluated],
        eval_ci95=columns.get("eval/return_ci95", unknown)[evaluated],
        train_step=step[trained],
        train_return=train[trained],
    )


def plot_curve(path: Path, series: Sequence[Series], *, title: str = "") -> None:
    """Write a PNG of return against environment steps; the same data give the same bytes.

    One run: its evaluations with their 95 % intervals. Several: each one thin, their mean thick, with the
    95 % bootstrap band of the mean over runs. Training returns are faint. Raises ValueError without series,
    StorageError where the file cannot be written.
    """
    if not series:
        raise ValueError("plot_curve: no series")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        _draw_evaluation(axes, series)
        _draw_training(axes, series)
        _label(axes, title)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, metadata={"Software": None})
        except OSError as error:
            raise StorageError.of(error, what="a picture cannot be written", where=path) from error


def common_grid(series: Sequence[Series]) -> tuple[Array, Array]:
    """Evaluations of several runs at the same steps: steps [P] and returns [R, P].

    The steps are those of all runs within the range that every run covers; between its own evaluations a run
    is interpolated linearly. P is 0 where the ranges do not meet or a run has no evaluation.
    """
    if any(not len(one.eval_step) for one in series):
        return np.zeros(0), np.zeros((len(series), 0))
    first = max(float(one.eval_step[0]) for one in series)
    last = min(float(one.eval_step[-1]) for one in series)
    steps = np.unique(np.concatenate([one.eval_step for one in series]))
    steps = steps[(steps >= first) & (steps <= last)]
    return steps, np.stack([np.interp(steps, one.eval_step, one.eval_return) for one in series])


def repeat_summary(results: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """What several runs with different seeds say together, ready for JSON.

    results: the contents of their ``result.json``. For the last and the best evaluation: ``values`` one per
    run (None where a run has none), and ``mean`` and ``ci95`` (Student, over runs) of those there are.
    Raises ValueError without results.
    """
    if not results:
        raise ValueError("repeat_summary: no results")
    return {
        "runs": len(results),
        "seeds": [result.get("seed") for result in results],
        "last_eval": _over_runs([_evaluation_mean(result, "last_eval") for result in results]),
        "best_eval": _over_runs([_evaluation_mean(result, "best_eval") for result in results]),
    }


def repeat_rows(results: Sequence[Mapping[str, object]]) -> list[tuple[str, str]]:
    """The same as rows for a person: one per seed, then the means with their intervals."""
    rows = []
    for result in results:
        last, best = _evaluation_mean(result, "last_eval"), _evaluation_mean(result, "best_eval")
        rows.append((f"seed {result.get('seed')}", f"{_shown(last)}   best {_shown(best)}"))
    for title, key in (("mean, last", "last_eval"), ("mean, best", "best_eval")):
        values = [mean for mean in (_evaluation_mean(result, key) for result in results) if mean is not None]
        if values:
            interval = mean_interval(values)
            rows.append((title, f"{interval.text} over {len(values)} runs"))
    return rows


def _evaluation_mean(result: Mapping[str, object], key: str) -> float | None:
    evaluation = result.get(key)
    mean = evaluation.get("mean") if isinstance(evaluation, Mapping) else None
    return float(mean) if isinstance(mean, (int, float)) and math.isfinite(mean) else None


def _over_runs(values: Sequence[float | None]) -> dict[str, object]:
    known = [value for value in values if value is not None]
    if not known:
        return {"values": list(values), "mean": None, "ci95": [None, None]}
    interval = mean_interval(known)
    ends = [end if math.isfinite(end) else None for end in (interval.low, interval.high)]
    return {"values": list(values), "mean": interval.mean, "ci95": ends}


def _shown(mean: float | None) -> str:
    return "not evaluated" if mean is None else f"{mean:.1f}"


def _draw_training(axes: Axes, series: Sequence[Series]) -> None:
    label = "training episodes"
    for one in series:
        if len(one.train_step):
            axes.plot(
                one.train_step,
                one.train_return,
                color=_GREY,
                alpha=0.45,
                linewidth=0.9,
                zorder=1,
                label=label,
            )
            label = ""  # one entry in the legend for all of them


def _draw_evaluation(axes: Axes, series: Sequence[Series]) -> None:
    if len(series) == 1:
        (one,) = series
        low, high = one.eval_return - one.eval_ci95, one.eval_return + one.eval_ci95
        axes.plot(
            one.eval_step, one.eval_return, "o-", color=_BLUE, linewidth=2, markersize=4, label=one.label
        )
        axes.fill_between(one.eval_step, low, high, color=_BLUE, alpha=0.18, linewidth=0, label=_BAND)
        return
    for one in series:
        axes.plot(one.eval_step, one.eval_return, color=_BLUE, alpha=0.35, linewidth=0.9)
    steps, returns = common_grid(series)
    if len(steps):
        label = f"evaluation, mean of {len(series)} runs"
        axes.plot(steps, returns.mean(axis=0), color=_BLUE, linewidth=2.4, label=label)
        low, high = bootstrap_band(returns)
        axes.fill_between(steps, low, high, color=_BLUE, alpha=0.18, linewidth=0, label=_BAND)


def _label(axes: Axes, title: str) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=10)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return")
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(x=0.02)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best")
