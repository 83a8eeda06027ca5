"""Environment steps per second at one update a step, beside Stable-Baselines3, and where the time goes."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from statistics import median
from typing import Any

from harness import (
    RESULTS,
    Answer,
    Worker,
    WorkerError,
    our_worker,
    peer_worker,
    warn_if_busy,
    write_result,
)
from pairs import pair_arguments, parse, run_pairs
from tasks import TASKS, Task

ACTIVITIES = ("act", "step", "store", "sample", "update", "other")
"""What the time is divided into; the parts of a run sum to its seconds."""


def main() -> None:
    """Measure what the command line asks for."""
    parser = pair_arguments(__doc__, result=RESULTS / "steps.json")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="default: all")
    parser.add_argument("--steps", type=int, default=3000, help="environment steps of a run (default 3000)")
    parser.add_argument("--start-step", type=int, default=256, help="random steps before learning (256)")
    arguments = parse(parser)
    ours, peer = our_worker("steps_ours.py"), peer_worker("steps_sb3.py", arguments.sb3_python)
    warn_if_busy()
    try:
        tasks = {name: compare(name, ours, peer, arguments) for name in arguments.tasks}
    except WorkerError as error:
        sys.exit(f"benchmark stopped: {error}")
    setting = {"steps": arguments.steps, "start_step": arguments.start_step, "threads": arguments.threads}
    write_result(arguments.json, {"setting": setting, "tasks": tasks})


def compare(name: str, ours: Worker, peer: Worker, arguments: Namespace) -> dict[str, Any]:
    """The pairs of one task, with the medians of the shares of either side."""
    task = TASKS[name]
    print(f"{task.env_id}: steps/s, torch threads: {arguments.threads}")
    command = [f"--task={name}", f"--steps={arguments.steps}", f"--start-step={arguments.start_step}"]
    figures = run_pairs(
        ours,
        peer,
        command,
        pairs=arguments.pairs,
        threads=arguments.threads,
        unit="steps",
        check=lambda answer: check(answer, task, arguments),
    )
    shares = {
        side: {
            part: median(shares_of(pair[side])[part] for pair in figures["answers"]) for part in ACTIVITIES
        }
        for side in ("ours", "peer")
    }
    for side, worker in (("ours", ours), ("peer", peer)):
        print(f"{worker.name}: " + ", ".join(f"{part} {x:.0%}" for part, x in shares[side].items()))
    return {"env_id": task.env_id, **figures, "shares": shares}


def check(answer: Answer, task: Task, arguments: Namespace) -> None:
    """Raise WorkerError unless the answer comes from the networks, threads, steps and updates asked for."""
    wanted = {"parameters": task.parameters, "threads": arguments.threads, "steps": arguments.steps}
    for name, value in wanted.items():
        if answer[name] != value:
            raise WorkerError(f"{answer['library']} reports {name} {answer[name]}, not {value}")
    expected = arguments.steps - arguments.start_step
    if abs(answer["updates"] - expected) > 2:  # libraries differ in which step is the first to learn from
        raise WorkerError(f"{answer['library']} made {answer['updates']} updates, not {expected}")
    unknown = set(answer["time"]) ^ set(ACTIVITIES)
    if unknown:
        raise WorkerError(f"{answer['library']} divides its time otherwise: {', '.join(sorted(unknown))}")


def shares_of(answer: Mapping[str, Any]) -> dict[str, float]:
    """Part of the seconds that each activity took."""
    return {part: answer["time"][part] / answer["seconds"] for part in ACTIVITIES}


if __name__ == "__main__":
    main()
