"""Does it help that threads draw batches ahead? Updates per second without, with 1 and with 5 threads.

    python benchmarks/prefetch.py
    python benchmarks/prefetch.py --rounds 1 --seconds 2 --json trial.json

The numbers of threads take turns, so that neighbouring figures see the same machine; each ratio is the median
of those of the rounds. One torch thread. The load of the machine is written down beside the figures.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from harness import RESULTS, Answer, Worker, WorkerError, our_worker, warn_if_busy, write_result

CASES = ("vectors", "images", "windows")
"""See ``prefetch_ours.py``."""

Answers = dict[str, dict[int, list[Answer]]]
"""Case → prefetchers → one answer a round."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for."""
    options = parse_arguments(arguments)
    warn_if_busy()
    loads = [os.getloadavg()[0]]
    try:
        answers = run_rounds(our_worker("prefetch_ours.py"), options)
    except WorkerError as error:
        sys.exit(f"benchmark stopped: {error}")
    loads.append(os.getloadavg()[0])
    setting = {name: getattr(options, name) for name in ("rounds", "seconds")} | {"load": loads}
    write_result(
        options.json, {"setting": setting, "cases": {case: summarise(of) for case, of in answers.items()}}
    )


def parse_arguments(arguments: Sequence[str] | None) -> Namespace:
    """The command line."""
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each number, in turns (default 5)")
    parser.add_argument("--seconds", type=float, default=5.0, help="time measured in one run (default 5)")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds of updates that do not count")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--prefetchers", nargs="+", type=int, default=[0, 1, 5], metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", default=RESULTS / "prefetch.json")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds must be at least 1, --seconds more than 0")
    if options.prefetchers[0] != 0:
        parser.error("--prefetchers begins with 0, which the others are set against")
    return options


def run_rounds(worker: Worker, options: Namespace) -> Answers:
    """Every number of threads in turns, each in a process of its own. Raises WorkerError."""
    answers: Answers = {case: {number: [] for number in options.prefetchers} for case in options.cases}
    for seed in range(options.rounds):
        for case, numbers in answers.items():
            for number, found in numbers.items():
                command = [f"--case={case}", f"--prefetchers={number}", f"--seed={seed}"]
                command += [f"--seconds={options.seconds}", f"--warm-up={options.warm_up}"]
                found.append(worker.run(command))
                print(f"{case:8} {number} threads {speed(found[-1]):8.1f} updates/s", flush=True)
    return answers


def summarise(numbers: Mapping[int, Sequence[Answer]]) -> list[dict[str, Any]]:
    """For each number of threads the medians over the rounds, and how it does beside none in each round."""
    none = [speed(answer) for answer in numbers[0]]
    rows = []
    for number, answers in numbers.items():
        ratios = [speed(answer) / base for answer, base in zip(answers, none, strict=True)]
        rows.append(
            {
                "prefetchers": number,
                "updates_per_second": median(map(speed, answers)),
                "sample_ms": median(1000 * a["sample_seconds"] / a["updates"] for a in answers),
                "cpu_ms": median(1000 * a["cpu_seconds"] / a["updates"] for a in answers),
                "ratio": median(ratios),
                "ratios": ratios,
                "answers": list(answers),
            }
        )
    return rows


def speed(answer: Answer) -> float:
    """Updates per second of wall time."""
    return float(answer["updates"] / answer["seconds"])


if __name__ == "__main__":
    main()
