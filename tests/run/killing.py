"""Runs in processes of their own that are killed and resumed."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

from algorithm.runs.logs.metrics import read_metrics

LIMIT = 120.0  # seconds until something is wrong

# A server that has imported everything makes a new process in a moment, and is itself in no test's state.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.run.preloaded"])


def begin(folder: Path, *flags: str) -> BaseProcess:
    """``python main.py ./task flags…`` in ``folder``, in a process of its own; output into ``said.txt``."""
    process = _CONTEXT.Process(target=_main, args=(str(folder), ["./task", "--device=cpu", *flags]))
    process.start()
    return process


def finish(process: BaseProcess) -> int | None:
    """Its exit code."""
    process.join(LIMIT)
    return process.exitcode


def killed(folder: Path, name: str, *flags: str, rng: random.Random) -> bool:
    """Begin, wait for a checkpoint that was not there, kill -9 a moment later. False: it ended before."""
    checkpoints = folder / "models" / "task" / name / "checkpoints"
    before = set(_names(checkpoints))
    process = begin(folder, *flags, "-n", name)
    deadline = time.monotonic() + LIMIT
    while not set(_names(checkpoints)) - before and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(rng.uniform(0.0, 0.15))
    assert process.pid is not None
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    return finish(process) == -signal.SIGKILL


def said(folder: Path) -> str:
    """All that the processes have printed."""
    return (folder / "said.txt").read_text()


def what_must_agree(run: Path) -> dict[str, object]:
    """All of a finished run that two runs with the same seed share, whatever happened to them on the way."""
    last = max(run.glob("checkpoints/step_*"))
    manifest = json.loads((last / "manifest.json").read_text())
    files = manifest["files"]
    state = json.loads((last / "state.json").read_text())
    del state["seconds"]
    state["metrics"] = without_times(state["metrics"])
    metrics = {name: column for name, column in read_metrics(run / "metrics.jsonl").items() if timeless(name)}
    return {
        "weights": {name: entry["sha256"] for name, entry in files.items() if name.endswith(".safetensors")},
        "replay": manifest["replay"],  # every segment with its SHA-256, priorities among them
        "state": state,
        "metrics": json.dumps(metrics),  # NaN is not equal to itself
    }


def timeless(name: str) -> bool:
    """Whether a metric has nothing to do with clock and machine."""
    return not any(part in name for part in ("time/", "sys/"))


def without_times(value: object) -> object:
    """``value`` without what only the clock and the machine decide."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if timeless(key)}
    if isinstance(value, list):
        return [without_times(item) for item in value if not (isinstance(item, list) and _timed(item))]
    return value


def _timed(item: list) -> bool:
    return any(isinstance(part, str) and not timeless(part) for part in item)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("step_*")]


def _main(folder: str, arguments: list[str]) -> None:
    os.chdir(folder)
    output = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.argv = ["main.py", *arguments]
    from main import main

    code = main(arguments)
    sys.stdout.flush()
    os._exit(code)
