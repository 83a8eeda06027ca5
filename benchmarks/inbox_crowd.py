"""A learner's receiving side as it is, and processes of synthetic actors that send to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from harness import ROOT
from inbox_samples import AGREED, BEHAVIOUR, HOST, Sample, token

from algorithm.run.group import Recorder
from algorithm.run.timing import Stopwatch
from ds.actors import Actors
from ds.board import Board
from ds.certificates import make
from ds.feed import RemoteFeed
from ds.inbox import Inbox
from ds.limits import message_limit
from ds.security import CERTIFICATE, KEY, LearnerSecurity
from ds.server import Server
from ds.service import Service, Terms

QUEUE = 5
"""``base_config.episode_queue_size`` by default."""

_FOREVER_S = 1e6
_ROOM_S = 2.0
_ACTOR = Path(__file__).resolve().parent / "inbox_actor.py"


@dataclass(frozen=True)
class Usage:
    """Since the process began, or between two of these: parcels stored, and CPU seconds of its threads.

    seconds: of wall time · server: the event loop's thread · other: gRPC's own and any more
    queued:  seconds in which the main thread could have run and had no core
    """

    seconds: float
    parcels: int
    main: float
    server: float
    other: float
    queued: float

    def since(self, before: Usage) -> dict[str, float]:
        """What has been used meanwhile."""
        return {name: value - getattr(before, name) for name, value in vars(self).items()}


class Receiver:
    """Listens on a free port of this machine and stores with ``recorder`` what comes.

    folder: where to make a token and certificates; None: plain text
    """

    def __init__(self, sample: Sample, recorder: Recorder, *, folder: Path | None) -> None:
        spec, carry, length = sample.spec, (0,), sample.length
        self.actors = Actors(
            run="benchmark", seed=0, limit=-1, synchronous=False, heartbeat=_FOREVER_S, max_lag=-1
        )
        self.inbox, self.board = Inbox(QUEUE), Board({BEHAVIOUR: False})
        self.feed = RemoteFeed(
            self.inbox,
            self.actors,
            {BEHAVIOUR: recorder},
            before_step=lambda: None,
            watch=Stopwatch(),
            wait=0.02,
        )
        terms = Terms(
            agreed=AGREED,
            specs={BEHAVIOUR: spec},
            carry_shapes={BEHAVIOUR: carry},
            max_length=length,
            max_message=message_limit({BEHAVIOUR: spec}, {BEHAVIOUR: carry}, length),
            synchronous=False,
            room_timeout=_ROOM_S,
        )
        self._length = length
        self._process, self._begin = psutil.Process(), time.perf_counter()
        self._server = Server(
            Service(self.actors, self.inbox, self.board, terms),
            host=HOST,
            port=0,
            security=learner_security(folder),
            max_message=terms.max_message,
            on_fault=lambda kind, what: None,  # such as who is ended in the middle of a message
        )
        self.port = self._server.start()
        self._ids = {thread.name: thread.native_id for thread in threading.enumerate()}

    def take(self, most: int) -> None:
        """Store what waits, at most so many parcels."""
        for _ in range(most):
            if not len(self.inbox):
                return
            self.feed.step()

    def run_for(self, seconds: float) -> None:
        """Store whatever comes."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self.feed.step()

    def usage(self) -> Usage:
        """So far."""
        threads = {one.id: one.user_time + one.system_time for one in self._process.threads()}
        server = threads.get(self._ids["learner-server"], 0.0)
        now, main, queued = time.perf_counter() - self._begin, *_main_thread()
        other = time.process_time() - main - server
        return Usage(now, self.feed.steps // self._length, main, server, other, queued)

    def close(self) -> None:
        """Listen no more."""
        self.inbox.close()
        self._server.close(0.0)


class Crowd:
    """Processes of actors. A context: they end with it.

    clients: actors in each process
    """

    def __init__(self, port: int, case: str, *, folder: Path | None, clients: int = 1) -> None:
        self._command = [
            sys.executable,
            str(_ACTOR),
            f"--port={port}",
            f"--case={case}",
            f"--actors={clients}",
        ]
        if folder is not None:
            self._command.append(f"--secrets={folder}")
        self._processes: list[subprocess.Popen[str]] = []

    def grow(self, number: int) -> None:
        """So many processes, all of which the learner knows when this returns."""
        new = [self._begin() for _ in range(number - len(self._processes))]
        self._processes += new
        _answers(new)

    def tell(self, command: str) -> list[dict[str, Any]]:
        """The answers of all to a command, see ``inbox_actor.py``."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{command}\n")
            process.stdin.flush()
        return _answers(self._processes)

    def pace(self, parcels_per_second: float) -> None:
        """Of all together; -1: as many as the learner takes."""
        share = parcels_per_second / len(self._processes) if parcels_per_second > 0 else parcels_per_second
        self.tell(f"pace {share}")

    def __enter__(self) -> Crowd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()  # a sender may be waiting for room in an inbox that nobody empties
            process.communicate()

    def _begin(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )


def learner_security(folder: Path | None) -> LearnerSecurity:
    """Token and TLS, made in ``folder``; nothing without one."""
    if folder is None:
        return LearnerSecurity()
    make(folder, [HOST], days=1)
    return LearnerSecurity(token(folder), (folder / CERTIFICATE).read_bytes(), (folder / KEY).read_bytes())


def _main_thread() -> tuple[float, float]:
    """Seconds that it ran, and that it waited for a core; Linux only."""
    ran, queued, _ = Path("/proc/self/schedstat").read_text().split()
    return int(ran) / 1e9, int(queued) / 1e9


def _answers(processes: Sequence[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """One of each. Raises RuntimeError where there is none."""
    found = []
    for process in processes:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"a synthetic actor has ended with code {process.wait()}")
        found.append(json.loads(line))
    return found
