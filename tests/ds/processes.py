"""Learners and actors in processes of their own, begun from their command lines."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.ds import networks

LIMIT = 120.0  # seconds until something is wrong

# A server that has imported everything makes a new process in a moment, and is itself in no test's state.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.run.preloaded", "tests.ds.preloaded"])


def begin(
    folder: Path,
    name: str,
    role: str,
    *flags: str,
    namespace: str = "",
    task: str = "./task",
    descriptors: int = 0,
) -> BaseProcess:
    """``python main_ds.py TASK ROLE flags…`` in ``folder``; what it prints goes into ``NAME.txt``.

    namespace: of the network, see :mod:`tests.ds.networks`; empty for that of the tests
    descriptors: how many it may have, ``ulimit -n``; 0 for as many as the tests
    """
    arguments = [task, role, "--device=cpu", *flags]
    return run_command(folder, name, arguments, namespace=namespace, descriptors=descriptors)


def run_command(
    folder: Path, name: str, arguments: list[str], *, namespace: str = "", descriptors: int = 0
) -> BaseProcess:
    """``python main_ds.py arguments…``, likewise."""
    process = _CONTEXT.Process(
        target=_main, args=(str(folder), f"{name}.txt", arguments, namespace, descriptors)
    )
    process.start()
    return process


def finish(process: BaseProcess, *, limit: float = LIMIT) -> int | None:
    """Its exit code; None if it does not end within so many seconds."""
    process.join(limit)
    return process.exitcode


def said(folder: Path) -> str:
    """All that the processes have printed, for a failing test's message."""
    return "\n".join(f"== {file.name}\n{file.read_text()}" for file in sorted(folder.glob("*.txt")))


def port_of(folder: Path, run: str, *, label: str = "task") -> int:
    """Where the learner of a run listens, as soon as it does."""
    endpoint = folder / "models" / label / run / "endpoint.json"
    wait_for(endpoint.exists, f"no learner of {run}", folder)
    return int(json.loads(endpoint.read_text())["port"])


def wait_for(condition: Callable[[], object], what: str, folder: Path, *, limit: float = LIMIT) -> None:
    """Until ``condition``; an AssertionError with everything that was said if that takes too long."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"{what}\n{said(folder)}"
        time.sleep(0.02)


def _main(folder: str, output: str, arguments: list[str], namespace: str, descriptors: int) -> None:
    if descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    if namespace:
        networks.enter(namespace)
    os.chdir(folder)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.argv = ["main_ds.py", *arguments]
    from main_ds import main

    code = main(arguments)
    with contextlib.suppress(OSError):  # its disk may be full, and the program's own code counts
        sys.stdout.flush()
    os._exit(code)
