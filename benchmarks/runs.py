"""Trainings of this project by its command line, and what their folders say of them."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import yaml

from benchmarks.harness import ENVS, ROOT, Bench
from benchmarks.worker import Answer, WorkerError

TRAINED = ("model.rep.", "model.q.", "model.policy.")
"""Beginnings of the names of trained weights in a checkpoint; targets are not among them."""

WINDOW = {"batch": "batch_size", "burn_in": "burn_in_step", "learn": "learn_step", "n": "n_step"}

QUIET = {
    "eval_config.episodes": 1,  # evaluation is not timed: one short one at the end
    "sac_config.save_model_per_step": 10**9,  # only the one at the end
    "checkpoint_config.best": "false",
}
"""Overrides of a training that measures speed."""


def overriding(keys: Mapping[str, Any]) -> list[str]:
    """Overrides as words of a command line."""
    return [word for key, value in keys.items() for word in ("-o", f"{key}={_text(value)}")]


def _text(value: Any) -> str:
    """As YAML reads it."""
    return value if isinstance(value, str) else json.dumps(value)


def timed(bench: Bench, env: str, *words: str, seed: int, **keys: Any) -> Answer:
    """Train in a folder that is removed again; returns what :func:`read` finds.

    keys: overrides, ``__`` for the dot
    """
    with tempfile.TemporaryDirectory() as folder:
        changes = overriding({**QUIET, **{key.replace("__", "."): value for key, value in keys.items()}})
        words = (env, *words, *changes, f"--seed={seed}", "--name=run", "--device=cpu", "--quiet")
        used = train(bench, words, Path(folder))
        (result,) = Path(folder).glob("models/*/**/run/result.json")
        networks = hashlib.sha256(last_model(result.parent).read_bytes()).hexdigest()
        return {**read(result.parent), **used, "sha256": networks}


def train(
    bench: Bench, words: Sequence[str], folder: Path, checkout: Path = ROOT, log: str = "log"
) -> Answer:
    """``python main.py WORDS`` of a checkout, in a folder. Returns ``peak_rss_mb`` and ``cpu_seconds``.

    Raises WorkerError if it fails; what it said is in ``<folder>/<log>.txt``.
    """
    if not bench.smoke:
        command = [sys.executable, str(checkout / "main.py"), *words]
        return bench.run(command, folder / f"{log}.txt", cwd=folder, path=[ENVS])
    from main import main

    with _inside(folder), (folder / f"{log}.txt").open("w") as output, redirect_stdout(output):
        code = main(words)
    if code:
        raise WorkerError(f"`main.py {' '.join(words)}` ended with exit code {code}")
    return {"peak_rss_mb": 0.0, "cpu_seconds": 1.0}


@contextmanager
def _inside(folder: Path) -> Any:
    before, path = Path.cwd(), list(sys.path)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path


def finished(run: Path, keys: Mapping[str, Any]) -> bool:
    """Whether a run came to its last step. Raises WorkerError if one that did has other settings.

    keys: dotted path → value of what it has to be
    """
    if not (run / "result.json").exists():
        return False
    config = read_config(run)
    for key, wanted in keys.items():
        block, _, name = key.partition(".")
        if config[block][name] != wanted:
            raise WorkerError(f"{run} has {key} {config[block][name]}, not {wanted}: remove it")
    return bool(json.loads((run / "result.json").read_text())["steps"] >= config["base_config"]["max_step"])


def kept(
    bench: Bench, folder: Path, run: str, words: Sequence[str], keys: Mapping[str, Any], checkout: Path = ROOT
) -> Answer:
    """Results of a run below ``<folder>/models``, which is trained unless it is finished. Raises WorkerError.

    words: of the command line · keys: what the run has to say of itself, see :func:`finished`
    """
    path = folder / "models" / run
    if not finished(path, keys):
        shutil.rmtree(path, ignore_errors=True)  # what a killed training left
        folder.mkdir(parents=True, exist_ok=True)
        words = [*words, f"--name={path.name}", "--quiet"]
        train(bench, words, folder, checkout.resolve(), path.name)
    return read(path)


def read_config(run: Path) -> dict[str, Any]:
    """The effective configuration of a run."""
    config: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    return config


def read(run: Path) -> Answer:
    """What a finished run came to: date, version, steps, updates, seconds and their parts, and the curve.

    seconds: of training, without evaluation · curve: [environment step, mean return of its evaluation]
    core_seconds: of processors, at each of them; NaN where the run did not say
    """
    result, manifest = (json.loads((run / f"{name}.json").read_text()) for name in ("result", "manifest"))
    git = manifest["git"] or {"commit": "unknown", "changed": False}
    sac = read_config(run)["sac_config"]
    with (run / "metrics.csv").open(newline="") as file:
        points = [row for row in csv.DictReader(file) if row.get("eval/return_mean")]
    return {
        "library": "advanced-soft-actor-critic",
        "version": f"{git['commit']}{'+' if git['changed'] else ''}",
        "date": manifest["started"][:10],
        "threads": sac["threads"],
        "window": {name: sac[key] for name, key in WINDOW.items()},
        "parameters": count_trained(last_model(run)),
        **{key: result[key] for key in ("seed", "steps", "updates", "seconds", "time")},
        "curve": [[int(row["step"]), float(row["eval/return_mean"])] for row in points],
        "core_seconds": [float(row.get("time/cpu_seconds") or "nan") for row in points],
    }


def last_model(run: Path) -> Path:
    """The networks of a run's last checkpoint. Raises WorkerError where there is none."""
    models = sorted((run / "checkpoints").glob("step_*/model.safetensors"))
    if not models:
        raise WorkerError(f"{run} has no checkpoint")
    return models[-1]


def count_trained(model: Path) -> int:
    """Trainable weights of encoder, critics and policy, by the header of their file."""
    with model.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    return sum(math.prod(one["shape"]) for name, one in header.items() if name.startswith(TRAINED))
