"""How random should a discrete policy be? The share of the largest entropy that it is steered to, varied.

    python benchmarks/target_entropy.py                              # everything that is not there yet
    python benchmarks/target_entropy.py --tasks acrobot --variants 0.3 0.5 --seeds 1 2
    python benchmarks/target_entropy.py --table-only                 # figures and table of what is finished

A killed measurement goes on with the same command. A variant is a value of ``sac_config.target_d_alpha``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness import HERE
from jobs import Job
from outcomes import Row, summarise
from sweep import Sweep, main

VALUES = ("0.1", "0.3", "0.5", "0.7", "0.9")
DEFAULT = "0.3"
"""The value of the schema, with which the others are compared."""

THRESHOLDS = {"cart_pole": 475.0, "acrobot": -100.0}
"""Section → mean return of an evaluation that counts as solved: Gymnasium's own for both."""


def make_job(task: str, variant: str, seed: int, overrides: tuple[str, ...] = ()) -> Job:
    """The training with a value."""
    changes = (f"sac_config.target_d_alpha={variant}", *overrides)
    env = str(HERE / "target_entropy")
    return Job(task=task, variant=variant, seed=seed, env=env, section=task, overrides=changes)


def compare(rows: Sequence[Row]) -> Mapping[str, Any]:
    """Every value beside the default."""
    return {"thresholds": THRESHOLDS, "base": DEFAULT, "summary": summarise(rows, THRESHOLDS, DEFAULT)}


SWEEP = Sweep(
    name="target_entropy",
    about=__doc__,
    variants=dict.fromkeys(THRESHOLDS, VALUES),
    make_job=make_job,
    summarise=compare,
    tables="target-entropy-",
)

if __name__ == "__main__":
    main(SWEEP)
