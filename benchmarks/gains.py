"""Learning with a preset beside the peers' best learners, at equal steps and at equal CPU seconds.

Networks, batches and learning rates are the same, those of ``gains/config.yaml``, but for what a side is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.bare import Task, random_policy
from benchmarks.harness import HERE, Bench, smoke
from benchmarks.learning import half_width
from benchmarks.runs import timed
from benchmarks.speed import equal, their_settings
from benchmarks.worker import Answer, WorkerError

GAINS = HERE / "gains"
OURS = ("cross", "plain", "lean", "tqc")
"""Presets, of which ``plain`` is none."""

DROQ = {"dropout_rate": 0.01, "layer_norm": True}
PEERS: Mapping[str, Mapping[str, Any]] = {
    "SB3 SAC": {"algorithm": "SAC"},
    "sb3-contrib TQC": {"library": "sb3_contrib", "algorithm": "TQC"},
    "sbx CrossQ": {"library": "sbx", "algorithm": "CrossQ", "tau": None},
    "sbx DroQ": {"library": "sbx", "algorithm": "SAC", "gradient_steps": 4, "policy_delay": 4},
}
"""Side → what its ``sb3.train`` gets besides the settings of the task; None: not that one."""

SEEDS = {"half_cheetah": 3, "hopper": 3, "walker": 2, "lander": 2, "pendulum": 3}
"""Task → seeds of the first preset and of the first peer; the others have two, on ``FEWER`` tasks."""

FEWER = ("half_cheetah", "hopper", "pendulum")
Curves = Mapping[str, Sequence[np.ndarray]]


@smoke(tasks=["pendulum"], sides=["cross", "plain"], seeds=[1, 2], steps=60)
def gains(
    bench: Bench,
    earlier: Mapping[str, Any],
    *,
    tasks: list[str] = list(SEEDS),
    sides: list[str] = ["cross", *PEERS],
    seeds: list[int] = [],
    jobs: int = 2,
    steps: int = 0,
) -> Iterator[Mapping[str, Any]]:
    """Learning with a preset and by the peers; runs that the results have are not trained again."""
    if unknown := set(sides) - {*OURS, *PEERS}:
        raise WorkerError(
            f"there is no side {', '.join(sorted(unknown))}; known are {', '.join((*OURS, *PEERS))}"
        )
    runs: list[Answer] = [] if steps else list(earlier.get("runs", ()))
    known = {(run["task"], run["side"], run["seed"]) for run in runs}
    described = dict(earlier.get("tasks", {}))
    for task in tasks:
        env = equal(task, GAINS)["base_config"]["env_name"]
        described[task] = {
            "env_id": env,
            "random": random_policy(Task(env, 0, None), 1 if bench.smoke else 20),
        }
    wanted = [(task, side, seed) for task in tasks for side in sides for seed in seeds or _seeds(task, side)]
    plan = sorted((key for key in wanted if key not in known), key=lambda key: (key[2], sides.index(key[1])))
    for (task, side, seed), made in bench.each(plan, lambda key: _train(bench, *key, steps), at_a_time=jobs):
        if isinstance(made, WorkerError):
            print(made, file=sys.stderr)
        elif made:
            kept = ("library", "version", "seconds", "cpu_seconds", "updates", "curve")
            runs.append({"task": task, "side": side, "seed": seed, **{key: made[key] for key in kept}})
            print(
                f"{task}, {side}, seed {seed}: {made['curve'][-1]}, {made['cpu_seconds']:.0f} s", flush=True
            )
            runs.sort(key=lambda run: (list(SEEDS).index(run["task"]), run["side"], run["seed"]))
            yield {"tasks": described, "runs": runs, "against": against(described, runs, sides[0])}


def _seeds(task: str, side: str) -> list[int]:
    first = side in (OURS[0], next(iter(PEERS)))
    return list(range(1, 1 + (SEEDS[task] if first else 2 * (task in FEWER))))


def _train(bench: Bench, task: str, side: str, seed: int, steps: int) -> Answer | None:
    """A run of a side; None without a peer. steps: not the task's, one evaluation in their middle."""
    config = equal(task, GAINS)
    most = steps or config["base_config"]["max_step"] // (2 if side == "sbx DroQ" else 1)
    every, episodes = (steps // 2, 1) if steps else config["eval_config"].values()
    if side in OURS:
        preset = [] if side == "plain" else ["--preset", side]
        size = {
            "base_config__max_step": most,
            "eval_config__per_step": every,
            "eval_config__episodes": episodes,
        }
        return timed(bench, str(GAINS), "-c", task, *preset, seed=seed, **size)
    said = {**their_settings(task, GAINS), **PEERS[side]}
    arch = said["policy_kwargs"]["net_arch"]
    if said.get("library") == "sbx":  # the Q-functions' are others by default
        said["policy_kwargs"] = {"net_arch": {"pi": arch, "qf": arch}, **(DROQ if side == "sbx DroQ" else {})}
    fit = {"steps": most, "every": every, "episodes": episodes}
    return bench.theirs("sb3:train", seed=seed, fit=fit, **{k: v for k, v in said.items() if v is not None})


def against(
    tasks: Mapping[str, Mapping[str, Any]], runs: Sequence[Answer], first: str
) -> dict[str, dict[str, Any]]:
    """Mean height of the first side's curves minus that of each other side, at equal steps and CPU seconds.

    Returns are scaled by task: 0 is the random policy, 1 the best evaluation of Stable-Baselines3's SAC, or
    of anybody where it has none. A curve begins at step 0 with the random policy's return; CPU seconds grow
    evenly with steps. Tasks count alike. ``ci95`` is half of Student's 95 % interval over seeds.
    """
    found = {}
    for side in dict.fromkeys(run["side"] for run in runs):
        if side == first:
            continue
        entry: dict[str, Any] = {"tasks": []}
        heights: dict[str, list[tuple[list[float], list[float]]]] = {"steps": [], "cpu_seconds": []}
        for task in tasks:
            pair = [[run for run in runs if (run["task"], run["side"]) == (task, of)] for of in (first, side)]
            if not all(pair):
                continue
            entry["tasks"].append(task)
            best = _best([run for run in runs if run["task"] == task])
            low = tasks[task]["random"]
            for unit, of in heights.items():
                curves = [[scaled(run, low, best, unit) for run in of_side] for of_side in pair]
                end = min(fmean(curve[-1, 0] for curve in of_side) for of_side in curves)
                ours, theirs = ([height(curve, end) for curve in of_side] for of_side in curves)
                of.append((ours, theirs))
        for unit, of in heights.items():
            if of:
                gap = fmean(fmean(ours) - fmean(theirs) for ours, theirs in of)
                entry[unit] = {"difference": gap, "ci95": half_width(of)}
        if entry["tasks"]:
            found[side] = entry
    return found


def _best(runs: Sequence[Answer]) -> float:
    """Highest evaluation of the peer that the scale is made by."""
    theirs = [run for run in runs if run["side"] == next(iter(PEERS))] or runs
    return max(float(mean) for run in theirs for _, mean in run["curve"])


def scaled(run: Answer, low: float, best: float, unit: str) -> np.ndarray:
    """Return a run's curve [P, 2] over steps or CPU seconds; 0 is the random policy, 1 the best."""
    curve = np.array([[0, low], *run["curve"]], np.float64)
    curve[:, 1] = (curve[:, 1] - low) / (best - low)
    if unit == "cpu_seconds":
        curve[:, 0] *= run["cpu_seconds"] / curve[-1, 0]
    return curve


def height(curve: np.ndarray, end: float) -> float:
    """Mean height of (x, y) [P, 2] from 0 to ``end``, by the trapezoidal rule."""
    inside = curve[curve[:, 0] < end]
    last = np.interp(end, curve[:, 0], curve[:, 1])
    x, y = np.append(inside[:, 0], end), np.append(inside[:, 1], last)
    return float(np.trapezoid(y, x) / end)
