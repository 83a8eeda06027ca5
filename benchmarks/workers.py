"""How fast are environments collected from, and does the number of worker processes change what is learned?

Speed: random actions, no learning, for every number of copies and worker processes, beside Gymnasium's own
vector environments, in turns. Identity: the same seed trained with each number of worker processes must give
the same networks, bit for bit.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from harness import HERE, RESULTS, ROOT, WorkerError, our_worker, thread_limits, warn_if_busy, write_result
from runs import last_model
from tasks import TASKS

PEERS = ("sync", "async")


def main() -> None:
    """Measure what the command line asks for; exit code 1 if the networks differ."""
    arguments = parse_arguments()
    warn_if_busy()
    try:
        speed = measure_speed(arguments)
        identity = compare_networks(arguments)
    except WorkerError as error:
        sys.exit(f"benchmark stopped: {error}")
    setting = {
        "env_id": TASKS[arguments.task].env_id,
        "seconds": arguments.seconds,
        "rounds": arguments.rounds,
    }
    write_result(arguments.json, {"setting": setting, "speed": speed, "identity": identity})
    if not identity["same"]:
        sys.exit("the number of worker processes changed what was learned")


def parse_arguments() -> Namespace:
    """The command line."""
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", choices=TASKS, default="half_cheetah")
    parser.add_argument("--copies", nargs="+", type=int, default=[1, 2, 4, 8], metavar="N")
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 1, 2], metavar="W")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each arrangement (default 3)")
    parser.add_argument("--seconds", type=float, default=5.0, help="time measured in one of them (default 5)")
    parser.add_argument("--steps", type=int, default=1500, help="length of the trainings (default 1500)")
    parser.add_argument("--json", type=Path, metavar="FILE", default=RESULTS / "workers.json")
    arguments = parser.parse_args()
    if arguments.steps <= TASKS[arguments.task].start_step:
        parser.error("--steps: nothing would be learned in so few")
    return arguments


def arrangements(copies: int, workers: list[int]) -> Iterator[tuple[str, list[str]]]:
    """Name and options of everything that is measured with so many copies; a worker needs a copy."""
    for number in workers:
        if number <= copies:
            yield f"workers {number}", ["--kind=ours", f"--workers={number}"]
    for kind in PEERS:
        yield kind, [f"--kind={kind}"]


def measure_speed(arguments: Namespace) -> list[dict[str, Any]]:
    """One row per number of copies: steps per second of each arrangement, and their medians."""
    worker = our_worker("workers_run.py")
    env_id = TASKS[arguments.task].env_id
    rows = []
    for copies in arguments.copies:
        rates: dict[str, list[float]] = {}
        for _ in range(arguments.rounds):
            for name, options in arrangements(copies, arguments.workers):
                answer = worker.run(
                    [f"--env={env_id}", f"--n={copies}", f"--seconds={arguments.seconds}", *options]
                )
                rates.setdefault(name, []).append(answer["steps"] / answer["seconds"])
        medians = {name: median(values) for name, values in rates.items()}
        shown = ", ".join(f"{name} {rate:.0f}/s" for name, rate in medians.items())
        print(f"{copies} copies: {shown}", flush=True)
        rows.append({"copies": copies, "medians": medians, "rates": rates})
    return rows


def compare_networks(arguments: Namespace) -> dict[str, Any]:
    """Train four copies with each number of worker processes on one seed; SHA-256 of the networks."""
    hashes: dict[str, str] = {}
    for number in arguments.workers:
        with TemporaryDirectory() as folder:
            hashes[str(number)] = train(arguments, number, Path(folder))
        print(f"{number} workers: model.safetensors {hashes[str(number)][:16]}…", flush=True)
    same = len(set(hashes.values())) == 1
    return {"steps": arguments.steps, "copies": 4, "sha256": hashes, "same": same}


def train(arguments: Namespace, workers: int, folder: Path) -> str:
    """A short training through the command line; SHA-256 of its networks. Raises WorkerError."""
    keys = {
        "base_config.max_step": arguments.steps,
        "base_config.workers": workers,
        "eval_config.per_step": arguments.steps,
        "eval_config.episodes": 1,
    }
    command = [sys.executable, str(ROOT / "main.py"), str(HERE / "equal"), "-c", arguments.task]
    command += ["--agents=4", "--seed=1", "--name=run", "--device=cpu", "--quiet"]
    command += [word for key, value in keys.items() for word in ("-o", f"{key}={value}")]
    environment = os.environ | thread_limits(1)
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise WorkerError(f"`{' '.join(command)}` ended with exit code {done.returncode}")
    return hashlib.sha256(last_model(folder / "models" / "equal" / "run").read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
