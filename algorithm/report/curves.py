"""Learning curves: read from a run's metrics, and drawn. Matplotlib is imported when it is needed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from algorithm.errors import StorageError
from algorithm.evaluation.statistics import bootstrap_band
from algorithm.run.logs.metrics import read_metrics
from algorithm.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE = "#1f6fb4"
_COLOURS = (_BLUE, "#c4501b", "#2a7d46", "#8a4fa3", "#8a6d00", "#b3325c")
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
    return series_of(read_metrics(path), label)


def series_of(columns: Mapping[str, Sequence[float]], label: str) -> Series:
    """The curves among the columns of one behaviour, ``step`` being one of them."""
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


def plot_curve(path: Path, series: Sequence[Series], *, title: str = "") -> None:
    """Write a PNG of return against environment steps; the same data give the same bytes.

    One run: its evaluations with their 95 % intervals. Several: each one thin, their mean thick, with the
    95 % bootstrap band of the mean over runs. Training returns are faint. Raises ValueError without series,
    StorageError where the file cannot be written.
    """
    if not series:
        raise ValueError("plot_curve: no series")

    def draw(axes: Axes) -> None:
        _draw_evaluation(axes, series)
        _draw_training(axes, series)

    _write_picture(path, draw, title)


def plot_groups(path: Path, groups: Mapping[str, Sequence[Series]], *, title: str = "") -> None:
    """Write a PNG that compares experiments: of each the mean of its runs, and its 95 % bootstrap band.

    groups: experiment -> its runs, one a seed. Raises as :func:`plot_curve`.
    """
    if not any(groups.values()):
        raise ValueError("plot_groups: no series")

    def draw(axes: Axes) -> None:
        for (name, series), colour in zip(groups.items(), itertools.cycle(_COLOURS)):
            _draw_mean(axes, series, f"{name}, {counted(len(series), 'run')}", colour, band="")

    _write_picture(path, draw, title)


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
    else:
        _draw_mean(axes, series, f"evaluation, mean of {len(series)} runs", _BLUE, band=_BAND)


def _draw_mean(axes: Axes, series: Sequence[Series], label: str, colour: str, *, band: str) -> None:
    """Every run thin, their mean over the steps that all of them cover, and its band if there are several."""
    for one in series:
        axes.plot(one.eval_step, one.eval_return, color=colour, alpha=0.35, linewidth=0.9)
    steps, returns = common_grid(series)
    if len(steps):
        axes.plot(steps, returns.mean(axis=0), color=colour, linewidth=2.4, label=label)
    if len(steps) and len(series) > 1:
        low, high = bootstrap_band(returns)
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0, label=band)


def _write_picture(path: Path, draw: Callable[[Axes], None], title: str) -> None:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        draw(axes)
        _label(axes, title)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, metadata={"Software": None})
        except OSError as error:
            raise StorageError.of(error, what="a picture cannot be written", where=path) from error


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
