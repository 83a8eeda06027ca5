"""Do representation learning and prediction pay on pictures? Catch seen, and with a ball that disappears.

    python benchmarks/representation.py                              # everything that is not there yet
    python benchmarks/representation.py --tasks catch --variants byol --seeds 1
    python benchmarks/representation.py --table-only                 # figures and table of what is finished

A killed measurement goes on with the same command. A task is a folder below envs/toy, a variant a section of
its config.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sweep
from jobs import Job
from outcomes import Row, summarise
from tables import render

BASE = "default"
VARIANTS = {
    "catch": (BASE, "atc", "byol", "prediction"),
    "hidden_catch": (BASE, "no_extra", "extra"),
}
THRESHOLD = 0.8
"""Mean return of an evaluation that counts as solved: nine balls of ten."""


def make_job(task: str, variant: str, seed: int, overrides: tuple[str, ...] = ()) -> Job:
    """The training of a section."""
    env = f"toy/{task}"
    return Job(task=task, variant=variant, seed=seed, env=env, section=variant, overrides=overrides)


def compare(rows: Sequence[Row]) -> Mapping[str, Any]:
    """Every section beside the default one, and how long each run took."""
    found = summarise(rows, dict.fromkeys(VARIANTS, THRESHOLD), BASE)
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        found[row["task"]][row["variant"]].setdefault("seconds", []).append(row["seconds"])
    return {"threshold": THRESHOLD, "base": BASE, "summary": found}


SWEEP = sweep.Sweep(
    name="representation",
    about=__doc__,
    variants=VARIANTS,
    make_job=make_job,
    summarise=compare,
    tables="representation-",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing and print the tables."""
    results = sweep.parse_arguments(SWEEP, arguments).results
    sweep.main(SWEEP, arguments)
    for task in VARIANTS:
        print(f"{task}\n\n{render(f'representation-{task}', results)}\n")


if __name__ == "__main__":
    main()
