"""The picture of a comparison of learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from harness import WorkerError
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from runs import Run

COLOURS = ("#1f6fb4", "#d9772b", "#3a8f5c")
"""Blue, orange and green that also differ in brightness."""


def draw(sides: Mapping[str, Sequence[Run]], *, title: str) -> Figure:
    """Evaluation return over environment steps: each run thin, the mean of a side thick.

    sides: label → runs, all evaluated at the same steps. Raises WorkerError where those of a side differ.
    """
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for (label, runs), colour in zip(sides.items(), COLOURS, strict=False):
        steps, returns = _stack(label, runs)
        for one in returns:
            axes.plot(steps, one, color=colour, alpha=0.4, linewidth=0.9)
        name = f"{label}, mean of {len(runs)} seed{'s' * (len(runs) > 1)}"
        axes.plot(steps, returns.mean(axis=0), "o-", color=colour, linewidth=2.4, markersize=4, label=name)
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=10)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("evaluation return, mean of 10 episodes")
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(color="#e4e8eb")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a PNG; the same figure gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def _stack(label: str, runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """Steps [P] and returns [R, P] of the runs of a side."""
    steps = [[step for step, _ in run.curve] for run in runs]
    if any(one != steps[0] for one in steps):
        raise WorkerError(f"{label}: its runs were evaluated at different steps")
    return np.array(steps[0]), np.array([[value for _, value in run.curve] for run in runs])
