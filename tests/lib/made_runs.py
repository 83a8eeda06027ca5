"""Folders of runs that nobody trained, with what their files would hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from algorithm.config.loader import dump_config, load_config
from algorithm.store.files import finite_or_null
from algorithm.store.rundir import RunDir

CURVE = {
    "rollout/return_mean": (-9.0, -8.0, -5.0, -3.0),
    "eval/return_mean": (math.nan, -8.0, math.nan, -2.5),
    "eval/return_ci95": (math.nan, 1.0, math.nan, 0.5),
    "loss/q": (math.nan, 0.5, 0.25, 0.125),
    "time/env_steps_per_s": (50.0, 50.0, 50.0, 50.0),
    "time/updates_per_s": (0.0, 10.0, 20.0, 25.0),
    "fault/env_restarts": (0.0, 0.0, 1.0, 1.0),
}
RESULT = {
    "steps": 400,
    "updates": 200,
    "seconds": 8.0,
    "seed": 7,
    "further": ["--max_step=800"],
    "last_eval": {"mean": -2.5, "ci95": 0.5, "episodes": 5, "step": 400},
    "best_eval": {"mean": -2.5, "ci95": 0.5, "episodes": 5, "step": 400},
    "time": {"update": 6.0, "step": 2.0},
    "faults": {"env_restarts": 1},
}


def metrics_text(columns: Mapping[str, Sequence[float]], steps: Sequence[int] = (100, 200, 300, 400)) -> str:
    """A ``metrics.jsonl``; NaN is null."""
    names, rows = ["step", *columns], zip(steps, *columns.values(), strict=True)
    return "".join(json.dumps(finite_or_null(dict(zip(names, row, strict=True)))) + "\n" for row in rows)


@lru_cache
def _config(overrides: tuple[str, ...], seed: int) -> str:
    """Of the one task that there is."""
    return dump_config(load_config("./task", None, overrides, seed=seed))


def make_run(
    name: str = "run",
    *,
    overrides: Sequence[str] = ("sac_config.tau=0.02",),
    seed: int = 7,
    metrics: str | None = metrics_text(CURVE),
    result: Mapping[str, object] | None = RESULT,
    arguments: Sequence[str] = ("main.py", "./task", "-n", "run", "-o", "sac_config.tau=0.02"),
) -> RunDir:
    """A run of ``./task`` below the current folder; None leaves a file out."""
    run = RunDir("task", name, Path("models/task", name).absolute(), "./task")
    run.path.mkdir(parents=True)
    run.write_config(_config(tuple(overrides), seed))
    run.write_overrides(overrides)
    manifest = {
        "started": "2026-01-02T03:04:05+00:00",
        "arguments": list(arguments),
        "seeds": {"run": seed},
        "render_modes": ["human", "rgb_array"],
        "python": "3.11.0",
        "versions": {"torch": "2.0", "rich": None},
        "git": {"commit": "abcdef", "changed": True},
        "host": {"name": "box", "system": "Linux", "cpus": 2},
    }
    run.manifest.write_text(json.dumps(manifest))
    if metrics is not None:
        run.metrics_jsonl.write_text(metrics)
    if result is not None:
        run.write_result(result)
    return run
