"""What is memory worth where velocities are hidden? (--images FOLDER: where the pictures go)

    python benchmarks/hidden.py                                      # everything that is not there yet
    python benchmarks/hidden.py --tasks pendulum --variants hidden_rnn --seeds 1
    python benchmarks/hidden.py --table-only                         # figures and pictures of what is there

A killed measurement goes on with the same command. A task is a folder below envs/gym, a variant a section of
its config.yaml, with as many steps as that says.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sweep
from curves import COLOURS, save
from harness import RESULTS, ROOT
from jobs import Job
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from outcomes import Row, summarise
from tables import render

BASE = "default"
LABELS = {
    BASE: "everything seen",
    "hidden_mlp": "hidden, no memory",
    "hidden_rnn": "hidden, recurrent",
    "hidden_attn": "hidden, attention",
}
"""Section → what the picture calls it."""

THRESHOLDS = {"pendulum": -200.0, "cart_pole": 475.0}
"""Task → mean return of an evaluation that counts as solved, as in ``ablation``."""

IMAGES = ROOT / "docs" / "images"
_COLOURS = dict(zip(LABELS, ("#6b7680", *COLOURS), strict=True))


def make_job(task: str, variant: str, seed: int, overrides: tuple[str, ...] = ()) -> Job:
    """The training of a section."""
    env = f"gym/{task}"
    return Job(task=task, variant=variant, seed=seed, env=env, section=variant, overrides=overrides)


def compare(rows: Sequence[Row]) -> Mapping[str, Any]:
    """Every variant beside the one that sees everything."""
    return {"thresholds": THRESHOLDS, "base": BASE, "summary": summarise(rows, THRESHOLDS, BASE)}


SWEEP = sweep.Sweep(
    name="hidden",
    about=__doc__,
    variants=dict.fromkeys(THRESHOLDS, tuple(LABELS)),
    make_job=make_job,
    summarise=compare,
    tables="hidden-",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing; print the tables and draw the pictures, also where it was interrupted."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--images", type=Path)
    own, others = parser.parse_known_args(arguments)
    results = sweep.parse_arguments(SWEEP, others).results
    try:
        sweep.main(SWEEP, others)
    finally:
        file = results / "hidden.json"
        if file.exists():
            # A trial has figures of its own: its pictures do not replace those of the documentation.
            show(file, own.images or (IMAGES if results == RESULTS else results))


def show(file: Path, images: Path) -> None:
    """Print the table and write the picture of every task that has figures in a result file."""
    rows = json.loads(file.read_text("utf-8"))["runs"]
    for task in dict.fromkeys(row["task"] for row in rows):
        print(f"{task}\n\n{render(f'hidden-{task}', file.parent)}\n")
        env = make_job(task, BASE, 1).loaded.config.base_config.env_name
        one = [row for row in rows if row["task"] == task]
        save(draw(one, title=f"{env}, velocities hidden"), images / f"hidden_{task}.png")


def draw(rows: Sequence[Row], *, title: str) -> Figure:
    """Evaluation return over environment steps: the mean of a variant's seeds, in a band that holds all.

    rows: of one task; those of a variant have the same settings, so they are evaluated at the same steps.
    """
    figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for variant, label in LABELS.items():
        curves = np.array([row["curve"] for row in rows if row["variant"] == variant])
        if len(curves):
            steps, returns, colour = curves[0, :, 0], curves[:, :, 1], _COLOURS[variant]
            axes.plot(steps, returns.mean(0), color=colour, linewidth=2.2, label=label)
            axes.fill_between(steps, returns.min(0), returns.max(0), color=colour, alpha=0.18, linewidth=0)
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=10)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("evaluation return: mean, and band of all seeds")
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(color="#e4e8eb")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
