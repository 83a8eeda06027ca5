"""How close to the optimum does it come on environments whose optimum is known? Every toy task, three seeds.

    python benchmarks/toys.py                                        # everything that is not there yet
    python benchmarks/toys.py --tasks hybrid --seeds 1
    python benchmarks/toys.py --table-only                           # figures and table of what is finished

A killed measurement goes on with the same command. A task is a folder below envs/toy, a variant a section of
its config.yaml.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import yaml
from harness import ROOT
from jobs import Job
from outcomes import Row
from sweep import Sweep, main

PRESETS = ROOT / "envs" / "toy"


def find_variants(presets: Path = PRESETS) -> dict[str, tuple[str, ...]]:
    """Folder → its sections, in the order of the file.

    Without a default that is no training of its own: one that names no environment, or that only holds what
    the sections share, ``mlp`` among them.
    """
    found = {}
    for file in sorted(presets.glob("*/config.yaml")):
        sections = yaml.safe_load(file.read_text("utf-8"))
        base = (sections.get("default") or {}).get("base_config") or {}
        skipped = set() if "env_name" in base and "mlp" not in sections else {"default"}
        found[file.parent.name] = tuple(name for name in sections if name not in skipped)
    return found


def make_job(task: str, variant: str, seed: int, overrides: tuple[str, ...] = ()) -> Job:
    """The training of a section."""
    env = f"toy/{task}"
    return Job(task=task, variant=variant, seed=seed, env=env, section=variant, overrides=overrides)


def shares(rows: Sequence[Row]) -> Mapping[str, Any]:
    """Last evaluations beside the mean return of the best policy, and of the best one that is blind."""
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        variants = found.setdefault(row["task"], {})
        if row["variant"] not in variants:
            variants[row["variant"]] = known(make_job(row["task"], row["variant"], row["seed"]))
        one = variants[row["variant"]]
        one["seeds"].append(row["seed"])
        one["final"].append(row["curve"][-1][1])
    return {"summary": found}


def known(job: Job) -> dict[str, Any]:
    """What is known of a toy beforehand, and no runs yet."""
    base = job.loaded.config.base_config
    env = gym.make(base.env_name, **(base.env_args or {}))
    optimum, chance = float(env.unwrapped.optimum), float(env.unwrapped.chance)
    env.close()
    return {"env_id": base.env_name, "optimum": optimum, "chance": chance, "seeds": [], "final": []}


def make_sweep() -> Sweep:
    """Everything below envs/toy. Leaves the program where there is nothing."""
    variants = find_variants()
    if not variants:
        sys.exit(f"there is no task below {PRESETS}")
    return Sweep(
        name="toys", about=__doc__, variants=variants, make_job=make_job, summarise=shares, tables="toys"
    )


if __name__ == "__main__":
    main(make_sweep())
