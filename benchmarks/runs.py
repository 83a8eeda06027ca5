"""Finished training runs of either side, read into one form."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from harness import WorkerError, read_answer
from safetensors import safe_open
from tasks import Task

from algorithm.config import Config, load_config_file
from algorithm.run.logs.metrics import read_metrics

TRAINED = ("model.rep.", "model.q.", "model.policy.")
"""Beginnings of the names of trained weights in a checkpoint; targets are not among them."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run."""

    library: str
    version: str
    seed: int
    seconds: float  # of training, without evaluation
    parameters: int  # trainable weights of encoder, critics and policy
    curve: tuple[tuple[int, float], ...]  # (environment step, mean return of its evaluation)

    @property
    def final(self) -> float:
        """Mean return of the last evaluation."""
        return self.curve[-1][1]

    def area(self) -> float:
        """Mean height of the curve."""
        return mean_height(self.curve)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def mean_height(curve: Sequence[Sequence[float]]) -> float:
    """Mean height of a curve between its first and its last evaluation, by the trapezoidal rule."""
    total = sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(curve))
    return total / (curve[-1][0] - curve[0][0])


def read_ours(folder: Path) -> Run:
    """A run's folder of this project. Raises WorkerError where the run is not finished."""
    result = folder / "result.json"
    if not result.exists():
        raise WorkerError(f"{folder} is no finished run: it has no result.json")
    outcome = json.loads(result.read_text())
    git = json.loads((folder / "manifest.json").read_text())["git"] or {"commit": "unknown", "changed": False}
    columns = read_metrics(folder / "metrics.csv")
    points = zip(columns["step"], columns["eval/return_mean"], strict=True)
    return Run(
        library="advanced-soft-actor-critic",
        version=f"{git['commit']}{'+' if git['changed'] else ''}",
        seed=outcome["seed"],
        seconds=outcome["seconds"],
        parameters=count_trained(folder),
        curve=tuple((int(step), mean) for step, mean in points if math.isfinite(mean)),
    )


def read_theirs(file: Path) -> Run:
    """What a learning worker printed into a file, noise of its libraries included. Raises WorkerError."""
    answer = read_answer(file.read_text(), of=str(file))
    return Run(
        library=answer["library"],
        version=answer["version"],
        seed=answer["seed"],
        seconds=answer["seconds"],
        parameters=answer["parameters"],
        curve=tuple((int(step), fmean(returns)) for step, returns in answer["curve"]),
    )


def last_model(folder: Path) -> Path:
    """The networks of a run's last checkpoint. Raises WorkerError where there is none."""
    models = sorted((folder / "checkpoints").glob("step_*/model.safetensors"))
    if not models:
        raise WorkerError(f"{folder} has no checkpoint")
    return models[-1]


def count_trained(folder: Path) -> int:
    """Trainable weights of encoder, critics and policy in a run's last checkpoint."""
    with safe_open(last_model(folder), "np") as file:
        names = [name for name in file.keys() if name.startswith(TRAINED)]  # noqa: SIM118 - not a dict
        return sum(math.prod(file.get_slice(name).get_shape()) for name in names)


def load_run_config(folder: Path) -> Config:
    """The effective configuration that a run was made with."""
    return load_config_file(folder / "config.yaml").config


def differences(config: Config, task: Task) -> list[str]:
    """Where a configuration of ours is not what the task says, each as ``key: ours, not theirs``."""
    base, sac = config.base_config, config.sac_config
    pairs = {
        "base_config.env_name": (base.env_name, task.env_id),
        "base_config.max_step": (base.max_step, task.steps),
        "base_config.n_envs": (base.n_envs, 1),
        "base_config.max_step_each_iter": (base.max_step_each_iter, -1),
        "base_config.reset_on_iteration": (base.reset_on_iteration, False),
        "replay_config.capacity": (config.replay_config.capacity >= task.steps, True),
        "eval_config.per_step": (config.eval_config.per_step, task.eval_every),
        "eval_config.episodes": (config.eval_config.episodes, task.eval_episodes),
        "sac_config.use_priority": (sac.use_priority, False),
        "sac_config.n_step": (sac.n_step, 1),
        "sac_config.clip_epsilon": (sac.clip_epsilon, 0),
        "sac_config.replay_ratio": (sac.replay_ratio, 1),
        "sac_config.use_auto_alpha": (sac.use_auto_alpha, True),
        "sac_config.init_log_alpha": (sac.init_log_alpha, 0),
        "sac_config.update_target_per_step": (sac.update_target_per_step, 1),
        "sac_config.ensemble_q_num": (sac.ensemble_q_num, 2),
        "sac_config.ensemble_q_sample": (sac.ensemble_q_sample, 2),
        "sac_config.threads": (sac.threads, 1),
        **{f"sac_config.{key}": (getattr(sac, key), getattr(task, key)) for key in _SHARED_KEYS},
    }
    return [f"{key}: {have}, not {want}" for key, (have, want) in pairs.items() if have != want]


_SHARED_KEYS = ("learning_rate", "start_step", "gamma", "tau", "batch_size")


def check_comparable(runs: Sequence[Run], task: Task) -> None:
    """Raise WorkerError unless every run went to the task's last step and no seed stands twice."""
    seeds = [run.seed for run in runs]
    if len(set(seeds)) != len(seeds):
        raise WorkerError(f"{runs[0].library}: a seed stands twice in {seeds}")
    for run in runs:
        end = run.curve[-1][0] if run.curve else 0
        if end != task.steps:
            raise WorkerError(
                f"{run.library}, seed {run.seed}: evaluated last at step {end}, not {task.steps}"
            )
