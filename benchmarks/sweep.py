"""The command line of what trains many variants: ``ablation``, ``target_entropy``, ``toys``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import RESULTS, ROOT, WorkerError, write_result
from jobs import Job, train_all
from outcomes import Outcomes, Row
from render_sweeps import together

from algorithm.config import ConfigError

MakeJob = Callable[[str, str, int, tuple[str, ...]], Job]
"""Task, variant, seed and more overrides → the training."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a measurement trains: every variant of every task with every seed.

    name:      of the result file, and what ``make bench ONLY=`` calls it.
    variants:  task → its variants, in the order of the table.
    make_job:  the training of one.
    summarise: rows → what the result file says besides them.
    tables:    beginning of the names of its tables.
    """

    name: str
    about: str | None
    variants: Mapping[str, Sequence[str]]
    make_job: MakeJob
    summarise: Callable[[Sequence[Row]], Mapping[str, Any]]
    tables: str
    seeds: tuple[int, ...] = (1, 2, 3)

    def plan(
        self,
        *,
        tasks: Sequence[str] | None = None,
        variants: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
        overrides: tuple[str, ...] = (),
    ) -> list[Job]:
        """The trainings of a slice, or of everything; seed by seed, so that every table fills evenly."""
        return [
            self.make_job(task, variant, seed, overrides)
            for seed in (seeds or self.seeds)
            for task in (tasks or self.variants)
            for variant in self.variants[task]
            if not variants or variant in variants
        ]


def main(sweep: Sweep, arguments: Sequence[str] | None = None) -> None:
    """Train what is missing, write the figures after every run, print the table."""
    options = parse_arguments(sweep, arguments)
    try:
        failed = measure(sweep, options)
    except (WorkerError, ConfigError) as error:
        sys.exit(f"benchmark stopped: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; what was finished is kept, the same command goes on from there")
    if failed:
        sys.exit("\n".join([f"benchmark: {len(failed)} trainings failed", *failed]))


def parse_arguments(sweep: Sweep, arguments: Sequence[str] | None) -> Namespace:
    """The command line."""
    about = (sweep.about or "").splitlines()
    parser = ArgumentParser(description=about[0] if about else None)
    known = list(dict.fromkeys(name for names in sweep.variants.values() for name in names))
    parser.add_argument(
        "--tasks", nargs="+", choices=sweep.variants, metavar="TASK", help=_choice(sweep.variants)
    )
    parser.add_argument("--variants", nargs="+", choices=known, metavar="NAME", help=_choice(known))
    parser.add_argument("--seeds", nargs="+", type=int, metavar="N", help="default: 1 2 3")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, one thread each (2)")
    parser.add_argument("--table-only", action="store_true", help="train nothing; figures of finished runs")
    parser.add_argument("--folder", type=Path, help=f"where runs lie (models/benchmarks/{sweep.name})")
    parser.add_argument("--results", type=Path, help="folder of the figures")
    parser.add_argument(
        "-o", "--override", action="append", default=[], metavar="A.B=VALUE", help="for trials: of every run"
    )
    options = parser.parse_args(arguments)
    if options.override and not (options.folder and options.results):
        parser.error("-o measures something else: give it a --folder and a --results of its own")
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    if not sweep.plan(tasks=options.tasks, variants=options.variants):
        parser.error("none of these tasks has such a variant")
    options.folder = (options.folder or ROOT / "models" / "benchmarks" / sweep.name).resolve()
    options.results = options.results or RESULTS
    return options


def _choice(names: Mapping[str, object] | Sequence[str]) -> str:
    return f"some of: {', '.join(names)} (default: all)"


def measure(sweep: Sweep, options: Namespace) -> list[str]:
    """Train the slice that the options name, unless only the table is wanted; returns what failed."""
    overrides = tuple(options.override)
    chosen = sweep.plan(
        tasks=options.tasks, variants=options.variants, seeds=options.seeds, overrides=overrides
    )
    file = options.results / f"{sweep.name}.json"
    everything = {job.name: job for job in (*sweep.plan(overrides=overrides), *chosen)}
    outcomes = Outcomes(list(everything.values()), file)

    def collect(_: Job | None = None) -> None:
        """Take what is finished, by another process too, and write the figures."""
        for job in everything.values():
            if job not in outcomes and job.is_finished(options.folder):
                outcomes.add(job, job.read(options.folder))
        rows = outcomes.rows
        if rows:
            write_result(file, {**sweep.summarise(rows), "settings": outcomes.settings, "runs": rows})

    collect()
    failed = []
    if not options.table_only:
        failed = train_all(chosen, options.folder, at_a_time=options.jobs, done=collect)
    if outcomes.rows:
        print(together(options.results, sweep.tables))
    elif not failed:
        raise WorkerError(f"no run is finished in {options.folder}")
    return failed
