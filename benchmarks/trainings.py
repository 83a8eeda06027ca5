"""The trainings of ``learning.py``: every seed of every side, a few at a time, one thread each."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from harness import HERE, ROOT, WorkerError, peer_worker, thread_limits
from runs import Run, read_ours, read_theirs
from tasks import TASKS


@dataclass(frozen=True)
class Training:
    """A command, the file that keeps what it prints, and how to read what it came to."""

    side: str
    command: Sequence[str]
    output: Path
    read: Callable[[], Run]

    def run(self) -> Run:
        """Train. Raises WorkerError if the command fails; its messages have gone to the standard error."""
        print(f"training: {' '.join(self.command)}", file=sys.stderr, flush=True)
        environment = os.environ | thread_limits(1) | {"PYTHONPATH": ""}
        with self.output.open("w") as output:
            done = subprocess.run(
                self.command, cwd=self.output.parent, env=environment, stdout=output, check=False
            )
        if done.returncode:
            raise WorkerError(f"`{' '.join(self.command)}` ended with exit code {done.returncode}")
        return self.read()


def train_sides(name: str, arguments: Namespace) -> dict[str, list[Run]]:
    """Train all seeds of the task, ``jobs`` at a time, the sides in turns.

    Everything lies in a new folder below ``models/``, which is printed: what is finished there can be
    compared later with ``--ours`` and ``--theirs``. Raises WorkerError.
    """
    folder = ROOT / "models" / "benchmarks" / f"{name}_{datetime.now():%Y%m%d_%H%M%S}"
    folder.mkdir(parents=True)
    print(f"{name}: runs go to {os.path.relpath(folder)}", file=sys.stderr)
    seeds = range(1, (arguments.seeds or TASKS[name].seeds) + 1)
    trainings = [one for seed in seeds for one in plan(name, seed, folder, arguments)]
    sides: dict[str, list[Run]] = {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        waiting = [pool.submit(training.run) for training in trainings]
        try:
            for training, future in zip(trainings, waiting, strict=True):
                sides.setdefault(training.side, []).append(future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)  # those that run are finished first
            raise
    return sides


def plan(name: str, seed: int, folder: Path, arguments: Namespace) -> list[Training]:
    """One training of each side with this seed."""
    peer = peer_worker("learning_sb3.py", arguments.sb3_python)
    told = folder / f"theirs_{seed}.txt"
    theirs = [str(peer.python), str(peer.script), f"--task={name}", f"--seed={seed}"]
    trainings = [
        _ours("ours", [str(HERE / "equal"), "-c", name], seed, folder),
        Training("peer", theirs, told, lambda: read_theirs(told)),
    ]
    if arguments.preset:
        task = TASKS[name]
        same_length = ["-o", f"base_config.max_step={task.steps}"]
        evaluated = ["-o", f"eval_config.per_step={task.eval_every}"]
        episodes = ["-o", f"eval_config.episodes={task.eval_episodes}"]
        what = [arguments.preset, *same_length, *evaluated, *episodes]
        trainings.append(_ours("preset", what, seed, folder))
    return trainings


def _ours(side: str, what: Sequence[str], seed: int, folder: Path) -> Training:
    run = f"{side}_{seed}"
    command = [sys.executable, str(ROOT / "main.py"), *what, f"--seed={seed}", f"--name={run}"]
    command += ["--device=cpu", "--quiet"]
    return Training(side, command, folder / f"{run}.txt", lambda: _read_run(folder, run))


def _read_run(folder: Path, name: str) -> Run:
    (result,) = (folder / "models").glob(f"**/{name}/result.json")
    return read_ours(result.parent)
