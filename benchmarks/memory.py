"""What does memory cost? Gradient updates per second, CPU-seconds of each, and where an update's time goes.

    python benchmarks/memory.py
    python benchmarks/memory.py --rounds 1 --seconds 2 --json trial.json

The cases are the sections of ``memory/config.yaml``. They take turns, so that neighbouring figures see the
same machine; each figure is the median of all rounds.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from harness import RESULTS, Answer, Worker, WorkerError, our_worker, warn_if_busy, write_result
from memory_ours import CASES, SETTING, load_case


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what the command line asks for."""
    options = parse_arguments(arguments)
    warn_if_busy()
    try:
        answers = run_rounds(our_worker("memory_ours.py"), options)
    except WorkerError as error:
        sys.exit(f"benchmark stopped: {error}")
    setting = {name: getattr(SETTING, name) for name in ("obs_size", "action_size", "transitions")}
    setting |= {name: getattr(options, name) for name in ("rounds", "seconds", "threads")}
    cases = {case: {"window": window_of(case), **summarise(found)} for case, found in answers.items()}
    write_result(options.json, {"setting": setting, "cases": cases})


def parse_arguments(arguments: Sequence[str] | None) -> Namespace:
    """The command line."""
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each case, in turns (default 5)")
    parser.add_argument("--seconds", type=float, default=6.0, help="time measured in one run (default 6)")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds of updates that do not count")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", default=RESULTS / "memory.json")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.seconds <= 0:
        parser.error("--seconds must be more than 0")
    return options


def run_rounds(worker: Worker, options: Namespace) -> dict[str, list[Answer]]:
    """Case → one answer a round, each of a process of its own. Raises WorkerError."""
    answers: dict[str, list[Answer]] = {case: [] for case in CASES}
    print(f"{'':12}{'updates/s':>10}{'CPU-s an update':>17}")
    for seed in range(options.rounds):
        for case, found in answers.items():
            command = [f"--case={case}", f"--seconds={options.seconds}", f"--warm-up={options.warm_up}"]
            command += [f"--threads={options.threads}", f"--seed={seed}"]
            answer = worker.run(command, threads=options.threads)
            if answer["threads"] != options.threads:
                raise WorkerError(f"{case} ran with {answer['threads']} threads, not {options.threads}")
            found.append(answer)
            print(f"{case:12}{speed(answer):10.1f}{cpu_seconds(answer):17.4f}", flush=True)
    return answers


def summarise(answers: Sequence[Answer]) -> dict[str, Any]:
    """Medians over the rounds of a case: updates per second, CPU-seconds and milliseconds of an update."""
    return {
        "parameters": answers[0]["parameters"],
        "updates_per_second": median(map(speed, answers)),
        "cpu_seconds": median(map(cpu_seconds, answers)),
        "ms": {
            part: median(1000 * answer["time"][part] / answer["updates"] for answer in answers)
            for part in answers[0]["time"]
        },
        "tokens": answers[0]["tokens"],
        "answers": list(answers),
    }


def speed(answer: Answer) -> float:
    """Updates per second of wall time."""
    return float(answer["updates"] / answer["seconds"])


def cpu_seconds(answer: Answer) -> float:
    """CPU-seconds of an update."""
    return float(answer["cpu_seconds"] / answer["updates"])


def window_of(case: str) -> dict[str, int]:
    """What a batch of a case is made of."""
    sac = load_case(case).config.sac_config
    return {"batch": sac.batch_size, "burn_in": sac.burn_in_step, "learn": sac.learn_step, "n": sac.n_step}


if __name__ == "__main__":
    main()
