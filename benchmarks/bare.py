"""Learning with a configuration of the environment only, beside Stable-Baselines3's defaults.

A side is one version of ours, called by a name, or ``sb3``. Runs lie below ``models/benchmarks/bare/<side>``,
as ``models/<task>/<task>-<seed>``; finished ones are not trained again, and others can be adopted.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from benchmarks.harness import ENVS, HERE, ROOT, Bench, machine, smoke
from benchmarks.runs import finished, kept, overriding, read
from benchmarks.worker import Answer, WorkerError, make_env

EPISODES, EVALUATIONS = 10, 4


@dataclass(frozen=True)
class Task:
    """What is said in ``bare.yaml``."""

    env: str
    steps: int
    peer: str | None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        """All that is said."""
        base = {"env_type": "GYM", "env_name": self.env, "max_step": self.steps}
        return {**self.more, "base_config": {**base, **self.more.get("base_config", {})}}

    @property
    def settings(self) -> dict[str, Any]:
        """What a finished run has to say."""
        return {"base_config.env_name": self.env, "base_config.max_step": self.steps}

    @property
    def wrappers(self) -> list[Any]:
        """Of the environment."""
        return list(self.more.get("base_config", {}).get("wrappers", ()))


TASKS = {name: Task(**said) for name, said in yaml.safe_load((HERE / "bare.yaml").read_text("utf-8")).items()}


@smoke(tasks=["pendulum"], seeds=[1], side="smoke", steps=40)
def bare(
    bench: Bench,
    earlier: Mapping[str, Any],
    *,
    tasks: list[str] = list(TASKS),
    seeds: list[int] = [1, 2, 3],
    jobs: int = 2,
    side: str = "after",
    checkout: Path = ROOT,
    adopt: list[str] = [],
    finished_only: bool = False,
    anew: bool = False,
    steps: int = 0,
) -> Iterator[Mapping[str, Any]]:
    """What is learned when nothing is said but the environment, beside Stable-Baselines3's defaults.

    side, checkout: what our runs are called, and what trains them · adopt: SIDE=FOLDER of finished runs, or
    sb3=FILE of one answer a line · finished_only: train nothing · anew: forget what the side did before
    """
    chosen = {name: replace(TASKS[name], steps=steps or TASKS[name].steps) for name in tasks}
    if anew:
        shutil.rmtree(bench.runs / "bare" / side, ignore_errors=True)
    rows = {_key(row): row for row in earlier.get("runs", ()) if not (anew and row["side"] == side)}
    for of, _, path in (one.partition("=") for one in adopt):
        found = _their_rows(Path(path)) if of == "sb3" else _our_rows(chosen, of, Path(path), seeds)
        rows |= {_key(row): row for row in found}
    described = dict(earlier.get("tasks", {}))
    for name, task in chosen.items():
        if described.get(name, {}).get("env") != task.env:
            described[name] = {"env": task.env, "random": random_policy(task)}
        described[name]["steps"] = task.steps
    rows = {key: row for key, row in rows.items() if _is_whole(row, described)}
    yield _content(described, rows, earlier)
    plan = [key for key in product(chosen, (side, "sb3"), seeds) if key not in rows and not finished_only]
    plan.sort(key=lambda key: key[2])  # seed by seed, so that every row fills evenly
    done = bench.each(plan, lambda key: _train(bench, chosen[key[0]], key, checkout), at_a_time=jobs)
    for key, made in done:
        if isinstance(made, WorkerError):
            print(made, file=sys.stderr)
            made = {"version": "unknown", "error": str(made).splitlines()[0]}
        if made is not None:
            rows[key] = _row(*key, made)
            print(f"{key}: {rows[key]['error'] or rows[key]['curve'][-1]}", flush=True)
            yield _content(described, rows, earlier)


def _content(
    described: Mapping[str, Any], rows: Mapping[Any, Answer], earlier: Mapping[str, Any]
) -> dict[str, Any]:
    """Content of the file. Day and commits are those of the runs."""
    runs = sorted(rows.values(), key=lambda row: (list(TASKS).index(row["task"]), row["side"], row["seed"]))
    versions = sorted({row["version"] for row in runs if row["side"] != "sb3"})
    return {
        "date": max((row["date"] for row in runs), default=""),
        "version": ", ".join(versions),
        "machine": earlier.get("machine") or machine(),
        "load": None,
        "tasks": dict(described),
        "runs": runs,
    }


def _key(row: Answer) -> tuple[str, str, int]:
    return row["task"], row["side"], row["seed"]


def _is_whole(row: Answer, described: Mapping[str, Any]) -> bool:
    """Whether a row is of the task as it is now."""
    if row["error"]:  # what they cannot do they never can
        return bool(row["side"] == "sb3")
    past = row["curve"][-1][0] - described.get(row["task"], {"steps": -1})["steps"]
    return bool(0 <= past < 8)  # their DQN stops at a multiple of its train_freq


def _row(task: str, side: str, seed: int, made: Answer) -> Answer:
    """A run as the file holds it; the curve is (step, mean return)."""
    known = ("version", "date", "seconds", "curve", "algorithm", "policy", "error")
    empty = {"date": date.today().isoformat(), "seconds": 0.0, "curve": [], "error": None}
    said = {key: made[key] for key in known if key in made}
    return {"task": task, "side": side, "seed": seed, **empty, **said}


def _their_rows(file: Path) -> Iterator[Answer]:
    """Answers of finished runs of theirs, maybe with the returns of all episodes. The day is the file's."""
    day = date.fromtimestamp(file.stat().st_mtime).isoformat()
    for line in file.read_text("utf-8").splitlines():
        made = json.loads(line)
        curve = [(step, fmean(of) if isinstance(of, list) else of) for step, of in made.get("curve", ())]
        yield _row(made["task"], "sb3", made["seed"], {"date": day, **made, "curve": curve})


def _our_rows(chosen: Mapping[str, Task], side: str, folder: Path, seeds: Sequence[int]) -> Iterator[Answer]:
    """Finished runs of ours that lie elsewhere."""
    for (name, task), seed in product(chosen.items(), seeds):
        run = folder / "models" / name / f"{name}-{seed}"
        try:
            if finished(run, task.settings):
                yield _row(name, side, seed, read(run))
        except WorkerError as error:
            print(f"left out: {error}", file=sys.stderr)


def _train(bench: Bench, task: Task, key: tuple[str, str, int], checkout: Path) -> Answer | None:
    """A run of either side, ours not again if it is finished; None where they have nothing for the task."""
    name, side, seed = key
    every = task.steps // EVALUATIONS
    if side == "sb3":
        env = {"env_id": task.env, "wrappers": task.wrappers}
        said = {"env": env, "seed": seed, "fit": {"steps": task.steps, "every": every, "episodes": EPISODES}}
        return bench.theirs("sb3:bare", **said, algorithm=task.peer) if task.peer else None
    folder = bench.runs / "bare" / side
    config = folder / "tasks" / name / "config.yaml"
    config.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump({"default": task.config})
    if not config.exists() or config.read_text("utf-8") != text:  # another seed may be reading it
        config.write_text(text, "utf-8")
    evaluated = {"eval_config.per_step": every, "eval_config.episodes": 1 if bench.smoke else EPISODES}
    words = [str(config.parent), f"--seed={seed}", *overriding(evaluated)]
    return kept(bench, folder, f"{name}/{name}-{seed}", words, task.settings, checkout)


def random_policy(task: Task, episodes: int = 20) -> float:
    """Mean return of uniformly random actions."""
    if str(ENVS) not in sys.path:
        sys.path.append(str(ENVS))
    env = make_env(task.env, wrappers=task.wrappers)
    env.action_space.seed(0)
    total = 0.0
    for episode in range(episodes):
        env.reset(seed=episode)
        over = False
        while not over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, over = total + float(reward), terminated or truncated
    env.close()
    return total / episodes
