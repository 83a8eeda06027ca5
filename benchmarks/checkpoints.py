"""What does a checkpoint cost that holds the replay, and what does going on from it?

    python benchmarks/checkpoints.py
    python benchmarks/checkpoints.py --rounds 1 --transitions 10000 --json trial.json

Each figure is the median over processes of their own, with one thread. The observation has three numbers
and the action one, as Pendulum has, in episodes of 200 steps; the replay is prioritised. ``RNN`` stores a
carry of 64 numbers with every row. Networks and optimisers are as many numbers as the default ones have.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from harness import RESULTS, Answer, Worker, WorkerError, our_worker, warn_if_busy, write_result

CARRIES = {"none": 0, "RNN": 64}
"""Memory → numbers of a stored carry."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for."""
    options = parse_arguments(arguments)
    warn_if_busy()
    worker = our_worker("checkpoints_ours.py")
    cases = []
    try:
        for memory in CARRIES:
            for transitions in options.transitions:
                cases.append(run_case(worker, memory, transitions, options))
                print(row(cases[-1]), flush=True)
    except WorkerError as error:
        sys.exit(f"benchmark stopped: {error}")
    setting = {name: getattr(options, name) for name in ("rounds", "further")}
    write_result(options.json, {"setting": setting, "cases": cases})


def parse_arguments(arguments: Sequence[str] | None) -> Namespace:
    """The command line."""
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="processes a figure (default 3)")
    parser.add_argument("--transitions", type=int, nargs="+", default=[100_000, 1_000_000], metavar="N")
    parser.add_argument("--further", type=int, default=1000, help="steps between two saves (default 1000)")
    parser.add_argument("--folder", type=Path, help="where to write; it is emptied again (default: /tmp)")
    parser.add_argument("--json", type=Path, metavar="FILE", default=RESULTS / "checkpoints.json")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if min(options.transitions) < 1000:
        parser.error("--transitions must be at least 1000")
    return options


def run_case(worker: Worker, memory: str, transitions: int, options: Namespace) -> dict[str, Any]:
    """The medians of all rounds, and the rounds. Raises WorkerError."""
    command = [f"--carry={CARRIES[memory]}", f"--transitions={transitions}", f"--further={options.further}"]
    if options.folder:
        command.append(f"--folder={options.folder}")
    answers = [worker.run(command) for _ in range(options.rounds)]
    return {"memory": memory, "transitions": transitions, **summarise(answers), "answers": answers}


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """Median seconds of each operation and peak of memory; bytes, which must be the same in all rounds.

    Raises WorkerError if they are not.
    """
    first = answers[0]
    if any(answer["bytes"] != first["bytes"] for answer in answers):
        raise WorkerError(f"the rounds have written different amounts: {[a['bytes'] for a in answers]}")
    medians = {
        what: {name: median(answer[what][name] for answer in answers) for name in first[what]}
        for what in ("seconds", "peak_mb")
    }
    return {"replay_mb": first["replay_mb"], "bytes": first["bytes"], **medians}


def row(case: dict[str, Any]) -> str:
    """One line about a case."""
    parts = [f"{case['memory']:5}{case['transitions']:>10,} transitions, {case['replay_mb']:6.1f} MB"]
    for name, seconds in case["seconds"].items():
        written = f" {case['bytes'][name] / 1e6:.2f} MB" if name in case["bytes"] else ""
        parts.append(f"{name}{written} {seconds:.2f} s, peak +{case['peak_mb'][name]:.0f} MB")
    return " · ".join(parts)


if __name__ == "__main__":
    main()
