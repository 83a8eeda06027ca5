"""How long a delay does each memory bridge within one budget? (--steps N: environment steps of a run, 20000)

    python benchmarks/delays.py                                      # everything that is not there yet
    python benchmarks/delays.py --tasks 32 64 --variants attn
    python benchmarks/delays.py --table-only                         # figures and table of what is finished

A killed measurement goes on with the same command. A task is the delay of toy/recall, a variant the section
that is trained, with windows as long as an episode. Other --steps need a --folder of their own: a finished
run with another budget stops the measurement.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import sweep
from jobs import Job
from outcomes import Row, steps_to
from tables import render
from toys import known

DELAYS = (8, 16, 32, 64)
SOLVED = 0.95
"""Share of the optimum that the last evaluation of a solved delay has at least."""

STEPS = 20_000
VARIANTS = ("rnn", "attn")


def windows(variant: str, delay: int) -> tuple[str, ...]:
    """What a user changes for a delay: a window holds an episode, attention sees from its end to the cue."""
    learned = f"sac_config.learn_step={delay + 2}"
    return {"rnn": (learned,), "attn": (f"sac_config.burn_in_step={delay + 1}", learned)}[variant]


def make_job(
    task: str, variant: str, seed: int, overrides: tuple[str, ...] = (), *, steps: int = STEPS
) -> Job:
    """The training of a section with a delay."""
    delay = int(task)
    changes = (f"base_config.env_args.delay={delay}", *windows(variant, delay))
    changes += (f"base_config.max_step={steps}", *overrides)
    return Job(task=task, variant=variant, seed=seed, env="toy/recall", section=variant, overrides=changes)


def longest(rows: Sequence[Row]) -> Mapping[str, Any]:
    """Last evaluations beside the optimum, when it was first reached, and the longest delay that is solved.

    reached: environment steps of a run's first evaluation at ``SOLVED`` of the optimum, None without one.
    """
    known_of = known(make_job(rows[0]["task"], rows[0]["variant"], rows[0]["seed"]))
    optimum, chance = known_of["optimum"], known_of["chance"]
    found: dict[str, dict[str, dict[str, list[Any]]]] = {}
    for row in sorted(rows, key=lambda row: (int(row["task"]), int(row["seed"]))):
        empty: dict[str, list[Any]] = {"seeds": [], "final": [], "reached": []}
        one = found.setdefault(row["task"], {}).setdefault(row["variant"], empty)
        one["seeds"].append(row["seed"])
        one["final"].append(row["curve"][-1][1])
        one["reached"].append(steps_to(row["curve"], SOLVED * optimum))
    solved: dict[str, int | None] = {}
    for variant in VARIANTS:
        finals = {int(delay): of[variant]["final"] for delay, of in found.items() if variant in of}
        if finals:
            reached = [delay for delay, final in finals.items() if fmean(final) >= SOLVED * optimum]
            solved[variant] = max(reached, default=None)
    return {"optimum": optimum, "chance": chance, "solved": SOLVED, "longest": solved, "summary": found}


def make_sweep(steps: int = STEPS) -> sweep.Sweep:
    """Every delay with both memories, one seed."""
    return sweep.Sweep(
        name="delays",
        about=__doc__,
        variants={str(delay): VARIANTS for delay in DELAYS},
        make_job=partial(make_job, steps=steps),
        summarise=longest,
        tables="delays",
        seeds=(1,),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train what is missing and print the table."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=STEPS)
    own, others = parser.parse_known_args(arguments)
    if own.steps < 1:
        sys.exit("--steps must be at least 1")
    one = make_sweep(own.steps)
    results = sweep.parse_arguments(one, others).results
    sweep.main(one, others)
    print(render("delays", results))


if __name__ == "__main__":
    main()
