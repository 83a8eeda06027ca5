"""What does each part of the target machinery do? One factor at a time, on one task of either kind of action.

    python benchmarks/ablation.py                                    # everything that is not there yet
    python benchmarks/ablation.py --tasks pendulum --variants base n3_is --seeds 1
    python benchmarks/ablation.py --table-only                       # figures and table of what is finished

A killed measurement goes on with the same command. Each training is a `python main.py benchmarks/ablation` of
its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness import HERE
from jobs import Job
from outcomes import Row, summarise
from sweep import Sweep, main

BASE = "base"
N_STEP, CORRECTED = "sac_config.n_step", "sac_config.use_n_step_is"
VARIANTS: dict[str, tuple[str, ...]] = {
    BASE: (),
    "n3_is": (f"{N_STEP}=3", f"{CORRECTED}=true"),
    "n3_no_is": (f"{N_STEP}=3", f"{CORRECTED}=false"),
    "n5_is": (f"{N_STEP}=5", f"{CORRECTED}=true"),
    "n5_no_is": (f"{N_STEP}=5", f"{CORRECTED}=false"),
    "no_per": ("sac_config.use_priority=false",),
    "clip_0.2": ("sac_config.clip_epsilon=0.2",),
}
"""Variant → what it changes in a section of ``ablation/config.yaml``."""

THRESHOLDS = {"pendulum": -200.0, "cart_pole": 475.0}
"""Section → mean return of an evaluation that counts as solved; 475 is Gymnasium's own for CartPole-v1."""


def make_job(task: str, variant: str, seed: int, overrides: tuple[str, ...] = ()) -> Job:
    """The training of a variant."""
    changes = (*VARIANTS[variant], *overrides)
    env = str(HERE / "ablation")
    return Job(task=task, variant=variant, seed=seed, env=env, section=task, overrides=changes)


def compare(rows: Sequence[Row]) -> Mapping[str, Any]:
    """Every variant beside the base."""
    return {"thresholds": THRESHOLDS, "base": BASE, "summary": summarise(rows, THRESHOLDS, BASE)}


SWEEP = Sweep(
    name="ablation",
    about=__doc__,
    variants=dict.fromkeys(THRESHOLDS, tuple(VARIANTS)),
    make_job=make_job,
    summarise=compare,
    tables="ablation-",
)

if __name__ == "__main__":
    main(SWEEP)
