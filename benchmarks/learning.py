"""Does it learn as well as Stable-Baselines3? The same algorithm on the same task, several seeds each.

    python benchmarks/learning.py --tasks pendulum                              # train both sides, compare
    python benchmarks/learning.py --tasks pendulum --ours RUN … --theirs FILE … # compare finished runs

Compared are the mean return of the last evaluation and the mean height of the curve. The intervals are 95 %
bootstrap intervals over seeds.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from curves import draw, save
from harness import RESULTS, ROOT, WorkerError, warn_if_busy, write_result
from interval import RESAMPLES, bootstrap_difference
from pairs import add_peer
from runs import Run, check_comparable, differences, load_run_config, read_ours, read_theirs
from tasks import TASKS, Task
from trainings import train_sides

IMAGES = ROOT / "docs" / "images"
LABELS = {"ours": "this project", "peer": "Stable-Baselines3"}


def main() -> None:
    """Train or read, compare, and write the figures and the picture of each task."""
    arguments = parse_arguments()
    try:
        for name in arguments.tasks:
            sides = read_sides(name, arguments) if arguments.ours else train_sides(name, arguments)
            content = compare(sides, TASKS[name], preset=arguments.preset)
            print_comparison(name, content)
            write_result(arguments.results / f"learning_{name}.json", content)
            save(picture(sides, TASKS[name], arguments.preset), arguments.images / f"learning_{name}.png")
    except WorkerError as error:
        sys.exit(f"benchmark stopped: {error}")


def parse_arguments() -> Namespace:
    """The command line."""
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="default: all")
    parser.add_argument("--seeds", type=int, help="train seeds 1 to N of each side (default: the task's)")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, one thread each (2)")
    parser.add_argument("--preset", metavar="ENV", help="a third side: our preset for the task")
    parser.add_argument("--ours", nargs="+", type=Path, metavar="RUN", help="finished runs of ours")
    parser.add_argument("--theirs", nargs="+", type=Path, metavar="FILE", help="what learning_sb3.py printed")
    parser.add_argument("--preset-runs", nargs="+", type=Path, default=[], metavar="RUN", help="run folders")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the figures")
    parser.add_argument("--images", type=Path, default=IMAGES, help="folder of the pictures")
    add_peer(parser)
    arguments = parser.parse_args()
    if bool(arguments.ours) != bool(arguments.theirs):
        parser.error("--ours and --theirs belong together")
    if arguments.ours and len(arguments.tasks) != 1:
        parser.error("finished runs belong to one task: name it with --tasks")
    if arguments.preset_runs and not (arguments.ours and arguments.preset):
        parser.error("--preset-runs needs --ours, --theirs and the name of the preset")
    if arguments.ours and arguments.preset and not arguments.preset_runs:
        parser.error("--preset with finished runs needs --preset-runs")
    if arguments.seeds is not None and arguments.seeds < 2:
        parser.error("--seeds must be at least 2: an interval needs two runs a side")
    if not arguments.ours:
        warn_if_busy()
    return arguments


def read_sides(name: str, arguments: Namespace) -> dict[str, list[Run]]:
    """The finished runs that the command line names; ours only if they are what the task says."""
    for folder in arguments.ours:
        found = differences(load_run_config(folder), TASKS[name])
        if found:
            raise WorkerError(f"{folder} is another task than {name}: {'; '.join(found)}")
    sides = {
        "ours": [read_ours(folder) for folder in arguments.ours],
        "peer": [read_theirs(file) for file in arguments.theirs],
        "preset": [read_ours(folder) for folder in arguments.preset_runs],
    }
    return {side: runs for side, runs in sides.items() if runs}


def compare(sides: Mapping[str, Sequence[Run]], task: Task, *, preset: str | None = None) -> dict[str, Any]:
    """Runs, means, and differences from the peer. Raises WorkerError for runs that cannot be compared."""
    for runs in sides.values():
        check_comparable(runs, task)
    for run in (*sides["ours"], *sides["peer"]):
        if run.parameters != task.parameters:
            raise WorkerError(f"{run.library} trained {run.parameters} weights, not {task.parameters}")
    return {
        "env_id": task.env_id,
        "steps": task.steps,
        "eval_episodes": task.eval_episodes,
        "preset": preset,
        "resamples": RESAMPLES,
        "comparisons": {side: _against_peer(sides, side) for side in sides if side != "peer"},
        "means": {side: _means(runs) for side, runs in sides.items()},
        "runs": {side: [run.as_json() for run in runs] for side, runs in sides.items()},
    }


def _means(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "seeds": [run.seed for run in runs],
        "final": fmean(run.final for run in runs),
        "area": fmean(run.area() for run in runs),
        "seconds": fmean(run.seconds for run in runs),
    }


def _against_peer(sides: Mapping[str, Sequence[Run]], side: str) -> dict[str, Any]:
    found = {
        "final": bootstrap_difference(
            [run.final for run in sides[side]], [run.final for run in sides["peer"]]
        ),
        "area": bootstrap_difference(
            [run.area() for run in sides[side]], [run.area() for run in sides["peer"]]
        ),
    }
    return {
        name: {"difference": d.mean, "ci95": [d.low, d.high], "verdict": d.verdict}
        for name, d in found.items()
    }


def print_comparison(name: str, content: Mapping[str, Any]) -> None:
    """The figures for a person."""
    for side, means in content["means"].items():
        label = LABELS.get(side, f"preset {content['preset']}")
        print(f"{name}, {label}: last evaluation {means['final']:.1f}, mean height {means['area']:.1f}")
    for side, figures in content["comparisons"].items():
        for what, found in figures.items():
            low, high = found["ci95"]
            print(
                f"{name}, {side} − peer, {what}: {found['difference']:+.1f} "
                f"[{low:+.1f}, {high:+.1f}], {found['verdict']}"
            )


def picture(sides: Mapping[str, Sequence[Run]], task: Task, preset: str | None) -> Any:
    """The curves of every side."""
    labels = {**LABELS, "preset": f"preset {preset}"}
    shown = {labels[side]: runs for side, runs in sides.items()}
    return draw(shown, title=task.env_id.partition(":")[2] or task.env_id)


if __name__ == "__main__":
    main()
