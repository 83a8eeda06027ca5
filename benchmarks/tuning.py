"""Studies: samplers and pruning beside one another, and what a study costs besides its runs."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import HERE, ROOT, Bench, smoke
from benchmarks.runs import overriding
from benchmarks.worker import Answer

TASK = "Pendulum-v1"
SIDES: dict[str, Mapping[str, Any]] = {
    "tpe": {},
    "tpe, no pruning": {"tune_config.pruner": "none"},
    "random": {"tune_config.sampler": "random"},
    "tpe, two jobs": {"tune_config.jobs": 2},
}
"""Side → its settings."""


@smoke(seeds=[1], sides=["tpe"], trials=1, final=0, steps=20)
def tuning(
    bench: Bench,
    earlier: Mapping[str, Any],
    *,
    seeds: list[int] = [1, 2, 3],
    sides: list[str] = [*SIDES],
    trials: int = 15,
    final: int = 5,
    steps: int = 3000,
) -> Iterator[Mapping[str, Any]]:
    """Best trial, its values and the section's own on fresh seeds, steps trained, cost; goes on after a kill.

    seeds: of the studies · final: fresh seeds
    """
    found: dict[str, Any] = dict(earlier.get("studies", {})) if not bench.smoke else {}
    keys = {"tune_config.trials": trials, "tune_config.final_seeds": final, "base_config.max_step": steps}
    for seed, side in product(seeds, sides):
        if str(seed) in found.get(side, {}):
            continue
        name = f"{side.replace(', ', '_').replace(' ', '_')}_{seed}"
        folder = bench.runs / "tuning"
        study = folder / "models" / TASK / name
        words = [TASK, "--tune", name, "--device=cpu"]
        if (study / "study.json").exists():
            words.append("--resume")
        else:
            changes = overriding({**keys, **SIDES[side]})
            words += ["-c", str(HERE / "tuning.yaml"), f"--seed={seed}", *changes]
        used = run(bench, words, folder, name)
        found.setdefault(side, {})[str(seed)] = {**read(study), **used}
        yield {"studies": found}


def run(bench: Bench, words: list[str], folder: Path, name: str) -> Answer:
    """Run a study; returns its wall seconds, and CPU seconds and memory of its own process."""
    folder.mkdir(parents=True, exist_ok=True)
    own: dict[str, float] = {}
    watch = threading.Thread(target=_watch, args=(name, own), daemon=True)
    begin = time.perf_counter()
    watch.start()
    bench.run([sys.executable, str(ROOT / "main.py"), *words], folder / f"{name}.txt", cwd=folder)
    return {"seconds": time.perf_counter() - begin, **own}


def _watch(name: str, own: dict[str, float]) -> None:
    """Note CPU seconds and memory of the study's process until it ends."""
    found: psutil.Process | None = None
    while True:
        try:
            found = found or next(
                child
                for child in psutil.Process().children(recursive=True)
                if ["--tune", name] == child.cmdline()[3:5]
            )
            own["own_cpu_seconds"] = sum(found.cpu_times()[:2])
            own["own_rss_mb"] = max(own.get("own_rss_mb", 0.0), found.memory_info().rss / 2**20)
        except (StopIteration, psutil.Error):
            if found is not None:
                return
        time.sleep(0.5)


def read(study: Path) -> Answer:
    """Results of a study: its best trial, values on fresh seeds, steps and CPU seconds of its trials."""
    trials = json.loads((study / "trials.json").read_text())["trials"]
    complete = [one for one in trials if one["state"] == "complete"]
    result = study / "result.json"
    return {
        "best": max(one["score"] for one in complete),
        "final": json.loads(result.read_text())["final"] if result.exists() else {},
        "states": [one["state"] for one in trials],
        "cpu_seconds": sum(_last(file)["time/cpu_seconds"] for file in study.glob("trial_*/metrics.jsonl")),
        "steps": sum(int(_last(file)["step"]) for file in study.glob("trial_*/metrics.jsonl")),
    }


def _last(metrics: Path) -> Mapping[str, Any]:
    """The last row of metrics."""
    row: Mapping[str, Any] = json.loads(metrics.read_text().splitlines()[-1])
    return row
