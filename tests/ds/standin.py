"""Stands in for ``ds.command``.

What happens is appended to ``events.txt`` in the working directory, a line each. A learner ends with 0 when a
file ``finish`` appears there, with the code in ``refuse`` when that does, and saves a checkpoint when told by
``save``. An actor ends with 0 once the learner says ``finished``, and dials again when it is cut off.
"""

import contextlib
import json
import os
import signal
import socket
import time
from pathlib import Path

from algorithm.app.cli.ds import DistributedOptions


def note(*words: object) -> None:
    with Path("events.txt").open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def learner(host: str, port: int, name: str, resume: bool, *overrides: str) -> int:
    run = Path("models", "task", name)
    run.mkdir(parents=True, exist_ok=resume)
    server = socket.create_server((host, port))
    server.settimeout(0.05)
    port = server.getsockname()[1]
    (run / "endpoint.json").write_text(json.dumps({"host": host, "port": port, "pid": os.getpid()}))
    print(f"listening on {host}:{port}", flush=True)
    note("learner", os.getpid(), port, "resumed" if resume else "fresh", *overrides)
    actors: list[socket.socket] = []
    asked: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    while not asked:
        with contextlib.suppress(TimeoutError):
            actors.append(server.accept()[0])
        if Path("save").exists():
            save(run)
        if Path("refuse").exists():
            print("error: the configuration is wrong", flush=True)
            return int(Path("refuse").read_text())
        if Path("finish").exists():
            for actor in actors:
                actor.sendall(b"finished")
            return 0
    save(run)
    note("learner saved")
    return 130


def save(run: Path) -> None:
    checkpoint = run / "checkpoints" / "step_10"
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "manifest.json").write_text("{}")


def actor(host: str, port: int, *overrides: str) -> int:
    def bye(number: int, frame: object) -> None:
        note("actor", os.getpid(), "bye")
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, bye)
    note("actor", os.getpid(), port, *overrides)
    while True:
        try:
            with socket.create_connection((host, port), timeout=None) as connection:
                note("actor", os.getpid(), "connected")
                if connection.recv(100) == b"finished":
                    note("actor", os.getpid(), "finished")
                    return 0
        except OSError:
            pass
        time.sleep(0.1)


def perform(options: DistributedOptions) -> int:
    host, port, train = str(options.learner_host), int(options.learner_port or 0), options.train
    if options.role == "learner":
        return learner(host, port, str(train.name), train.resume, *train.overrides)
    return actor(host, port, *train.overrides)
