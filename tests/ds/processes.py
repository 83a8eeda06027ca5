"""Learners and actors in processes of their own, what they say, and what of their work is in the replay."""

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import psutil

from algorithm.core.reading import read_json
from algorithm.replay.storage import NEXT
from algorithm.store.logs.metrics import read_metrics
from tests.ds.marked import SCALES

LIMIT = 120.0  # seconds until something is wrong

# A server that has imported everything makes a new process in a moment, and is itself in no test's state.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.lib.preloaded", "tests.ds.preloaded"])


def begin(folder: Path, name: str, role: str, *flags: str, task: str = "./task") -> BaseProcess:
    """``python main_ds.py TASK ROLE flags…`` in ``folder``; what it prints goes into ``NAME.txt``."""
    return run_command(folder, name, [task, role, "--device=cpu", *flags])


def run_command(folder: Path, name: str, arguments: list[str]) -> BaseProcess:
    """``python main_ds.py arguments…``, likewise."""
    process = _CONTEXT.Process(target=_main, args=(str(folder), f"{name}.txt", arguments))
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
    return int(read_json(endpoint)["port"])


def wait_for(condition: Callable[[], object], what: str, folder: Path, *, limit: float = LIMIT) -> None:
    """Until ``condition``; an AssertionError with everything that was said if that takes too long."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"{what}\n{said(folder)}"
        time.sleep(0.02)


def _main(folder: str, output: str, arguments: list[str]) -> None:
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


Made = tuple[int, int]
"""(episode, step) of a transition."""


class Scene:
    """All processes of one training run, named ``a``, by their names."""

    def __init__(self, folder: Path, task: str) -> None:
        self.folder, self.begun = folder, dict[str, BaseProcess]()
        self.run = folder / "models" / "task" / "a"
        (folder / "task").mkdir()
        (folder / "task" / "config.yaml").write_text(task)

    def learner(self, name: str, *flags: str, port: int = 0) -> int:
        """Begin one, wait until it listens, and return its port."""
        process = self.begin(name, "learner", "-n", "a", f"--learner_port={port}", *flags)
        port_of(self.folder, "a")
        endpoint = self.run / "endpoint.json"
        self.until(lambda: read_json(endpoint)["pid"] == process.pid, f"{name} does not listen")
        return int(read_json(endpoint)["port"])

    def begin(self, name: str, role: str, *flags: str) -> BaseProcess:
        """Any process; what it says is in ``NAME.txt``."""
        self.begun[name] = begin(self.folder, name, role, *flags)
        return self.begun[name]

    def close(self) -> None:
        """Nothing of it outlives its test."""
        for process in self.begun.values():
            if process.is_alive():
                process.kill()
                process.join()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for it."""
        wait_for(condition, what, self.folder)

    def said(self, name: str) -> str:
        """What a process has said so far."""
        file = self.folder / f"{name}.txt"
        return file.read_text() if file.exists() else ""

    def metric(self, name: str) -> float:
        """The last value in ``metrics.jsonl``; −1 before the first."""
        columns = read_metrics(self.run / "metrics.jsonl") if (self.run / "metrics.jsonl").exists() else {}
        return columns[name][-1] if columns.get(name) else -1.0

    def end(self, name: str, number: signal.Signals) -> int | None:
        """Send a signal; returns the exit code."""
        psutil.Process(self.begun[name].pid).send_signal(number)
        return finish(self.begun[name])

    def stored(self) -> Mapping[int, list[Made]]:
        """Process → what the newest checkpoint's replay has of its transitions, in the order of its rows."""
        while True:
            with contextlib.suppress(FileNotFoundError):  # the learner has removed it meanwhile
                return self._stored()

    def _stored(self) -> Mapping[int, list[Made]]:
        found: dict[int, list[Made]] = defaultdict(list)
        for row in self.rows().values():
            pid, episode, step = made(row)
            if row["links"][NEXT]:
                found[pid].append((episode, step))
        return found

    def rows(self) -> dict[int, np.void]:
        """Id → record of each row of the newest checkpoint's replay."""
        newest = max(self.run.glob("checkpoints/step_*/replay.json"), default=None)
        index = json.loads(newest.read_text())[""]["rows"] if newest else []
        chunks = [np.load(self.run / "replay" / chunk["file"]) for chunk in index]
        return {int(row["id"]): row for chunk in chunks for row in chunk}  # the later record of a row counts


def made(row: np.void) -> tuple[int, int, int]:
    """Process, episode and step of the observation of a record."""
    pid, episode, step = np.round(row["obs_float32"][:3] / SCALES).astype(int).tolist()
    return pid, episode, step


def missing(made: list[Made], length: int) -> int:
    """Transitions that are not there before the last one that is."""
    episode, step = max(made)
    return episode * length + step + 1 - len(set(made))


class Line:
    """Passes bytes between actors and the learner; ``cut``: none, and neither side is told."""

    def __init__(self, port: int) -> None:
        self.cut = False
        self.learner = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                actor, _ = self._server.accept()
                try:
                    learner = socket.create_connection(("127.0.0.1", self.learner))
                except OSError:  # nobody listens
                    actor.close()
                    continue
                for ends in ((actor, learner), (learner, actor)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with source, contextlib.suppress(OSError):
            while data := source.recv(2**16):
                while self.cut:
                    time.sleep(0.05)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_RDWR)
