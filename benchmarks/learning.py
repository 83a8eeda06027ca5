"""Learning beside Stable-Baselines3: the same algorithm on the same task, several seeds each.

Compared are the mean return of the last evaluation and the mean height of the curve, with Student's 95 %
intervals over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np

from algorithm.evaluation.statistics import student_quantile
from benchmarks.harness import Bench, smoke
from benchmarks.runs import kept, overriding
from benchmarks.speed import EQUAL, equal, their_settings
from benchmarks.worker import Answer, WorkerError

SEEDS = {"pendulum": [1, 2, 3, 4, 5], "half_cheetah": [1, 2, 3]}
"""Section of ``equal/config.yaml`` → seeds of each side."""

SIZE = ("base_config.max_step", "eval_config.per_step", "eval_config.episodes")


@smoke(tasks=["pendulum"], seeds=[1, 2], steps=60)
def learning(
    bench: Bench,
    earlier: Mapping[str, Any],
    *,
    tasks: list[str] = list(SEEDS),
    seeds: list[int] = [],
    jobs: int = 2,
    steps: int = 0,
) -> Iterator[Mapping[str, Any]]:
    """What is learned by the same algorithm; finished runs are not trained again. steps: not the task's."""
    found = dict(earlier.get("tasks", {}))
    for task in tasks:
        config = {key: value for block in equal(task).values() for key, value in block.items()}
        size = {key: config[key.split(".")[1]] for key in SIZE}
        size |= dict(zip(SIZE, (steps, steps // 2, 1), strict=True)) if steps else {}
        runs: dict[str, list[Answer]] = {}
        plan = product(seeds or SEEDS[task], ("ours", "peer"))
        for (seed, side), run in bench.each(plan, partial(_train, bench, task, size), at_a_time=jobs):
            if isinstance(run, WorkerError):
                raise run
            if run:
                runs[side] = sorted([*runs.get(side, ()), run], key=lambda run: run["seed"])
            print(f"{task}, {side}, seed {seed} is finished", flush=True)
        found[task] = {"env_id": config["env_name"], "steps": size[SIZE[0]], **compare(runs)}
        yield {"tasks": found}


def _train(bench: Bench, task: str, size: Mapping[str, Any], job: tuple[int, str]) -> Answer | None:
    """A run; ours is not trained again if it is finished. None without a peer."""
    seed, side = job
    if side == "ours":
        words = [str(EQUAL), "-c", task, *overriding(size), f"--seed={seed}", "--device=cpu"]
        return kept(bench, bench.runs / "learning", f"{EQUAL.name}/{task}-{seed}", words, size)
    fit = dict(zip(("steps", "every", "episodes"), size.values(), strict=True))
    return bench.theirs("sb3:train", seed=seed, fit=fit, **their_settings(task))


def compare(sides: Mapping[str, Sequence[Answer]]) -> dict[str, Any]:
    """Runs, means, and differences from the peer. Raises WorkerError for runs that cannot be compared."""
    sizes = {run["parameters"] for side in ("ours", "peer") for run in sides.get(side, ())}
    if len(sizes) > 1:
        raise WorkerError(f"the sides trained {sorted(sizes)} weights")
    if len({tuple(step for step, _ in run["curve"]) for runs in sides.values() for run in runs}) > 1:
        raise WorkerError("the runs were not evaluated at the same steps")
    values = {
        side: {
            "final": [run["curve"][-1][1] for run in runs],
            "area": [mean_height(np.array(run["curve"])) for run in runs],
        }
        for side, runs in sides.items()
    }
    return {
        "comparisons": {
            side: {what: difference(own[what], values["peer"][what]) for what in own}
            for side, own in values.items()
            if side != "peer" and "peer" in values
        },
        "means": {
            side: {
                "seeds": [run["seed"] for run in sides[side]],
                **{what: fmean(of) for what, of in own.items()},
                "seconds": fmean(run["seconds"] for run in sides[side]),
            }
            for side, own in values.items()
        },
        "runs": {side: list(runs) for side, runs in sides.items()},
    }


def mean_height(curve: np.ndarray) -> float:
    """Of (step, mean return) [P, 2] between the first and the last evaluation, by the trapezoidal rule."""
    return float(np.trapezoid(curve[:, 1], curve[:, 0]) / (curve[-1, 0] - curve[0, 0]))


def difference(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """mean(ours) − mean(theirs) and half its 95 % interval. Raises WorkerError with fewer than two a side."""
    half = half_width([(ours, theirs)])
    if half is None:
        raise WorkerError(f"an interval needs two runs a side, there are {len(ours)} and {len(theirs)}")
    gap = fmean(ours) - fmean(theirs)
    verdict = "not told apart" if abs(gap) <= half else "higher" if gap > 0 else "lower"
    return {"difference": gap, "ci95": half, "verdict": verdict}


def half_width(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float | None:
    """Half of Student's 95 % interval of the mean over tasks of mean(ours) − mean(theirs).

    pairs: values of both sides, one a seed, for each task. Spreads may differ (Welch 1947; the degrees of
    freedom, rounded, are Satterthwaite's). None with fewer than two values of a side.
    """
    sides = [np.asarray(side, np.float64) for pair in pairs for side in pair]
    if min(map(len, sides)) < 2:
        return None
    errors = [side.var(ddof=1) / len(side) for side in sides]
    if not (total := sum(errors)):
        return 0.0
    freedom = total**2 / sum(error**2 / (len(side) - 1) for error, side in zip(errors, sides, strict=True))
    return float(student_quantile(round(freedom)) * math.sqrt(total) / len(pairs))
