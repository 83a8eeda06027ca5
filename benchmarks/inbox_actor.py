"""Synthetic actors: they send episodes drawn once, as fast as they are told to, and fetch weights.

Commands come by standard input, a line each: ``pace X`` sends X parcels a second (-1: as many as the learner
takes, 0: none), ``fetch V`` fetches weights newer than version V by all actors at once. Every command is
answered with a line of JSON as soon as it is carried out. The end of the input ends the process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import count, repeat
from pathlib import Path

import numpy as np
from inbox_samples import HOST, LANES, SAMPLES, Sample, actor_security, hello, join, parcel, segment

from ds.client import Client
from ds.errors import Unreachable
from ds.protocol import Parcel, Receipt, Wanted

DIFFERENT = 4
"""Segments that take turns."""

_TIMEOUT_S = 60.0


class Pace:
    """When the next parcel may be sent, for all threads of this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._rate, self._due = 0.0, 0.0
        self._over = False

    def set(self, rate: float) -> None:
        """So many a second from now on; -1: no limit, 0: none."""
        with self._changed:
            self._rate, self._due = rate, time.monotonic()
            self._changed.notify_all()

    def end(self) -> None:
        """Nobody may send any more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def wait(self) -> bool:
        """Until it is this thread's turn; False once it is over."""
        with self._changed:
            while not self._over:
                if self._rate < 0.0:
                    return True
                left = self._due - time.monotonic() if self._rate else None
                if left is not None and left <= 0.0:
                    self._due = max(self._due + 1.0 / self._rate, time.monotonic() - 0.1)
                    return True
                self._changed.wait(left)
            return False


class Actor:
    """One that the learner knows, with :data:`LANES` threads that send."""

    def __init__(self, name: str, client: Client, sample: Sample, pace: Pace, seed: int) -> None:
        self._name, self._client, self._pace = name, client, pace
        rng = np.random.default_rng(seed)
        self._segments = [segment(sample, rng) for _ in range(DIFFERENT)]
        client.hello(hello(name))
        client.join(join(name))
        for lane in range(LANES):
            threading.Thread(target=self._run, args=(lane,), daemon=True).start()

    def fetch(self, than: int) -> int:
        """Bytes of the newest weights."""
        return sum(map(len, self._client.weights(Wanted(actor=self._name, than=than))))

    def _run(self, lane: int) -> None:
        for number in count(1):
            made = self._segments[number % DIFFERENT]
            if not self._pace.wait():
                return
            one = parcel(made, actor=self._name, lane=lane, number=number, version=0)
            while self._deliver(one).state == "again":
                pass

    def _deliver(self, one: Parcel) -> Receipt:
        try:
            receipt = self._client.deliver(one)
        except Unreachable:  # the learner has ended
            os._exit(0)
        if receipt.state not in ("taken", "again"):
            print(f"{self._name}: a parcel is {receipt.state} ({receipt.reason})", file=sys.stderr)
            os._exit(1)
        return receipt


def obey(commands: Iterable[str], actors: list[Actor], pace: Pace) -> None:
    """Carry out commands until there are no more."""
    with ThreadPoolExecutor(len(actors)) as pool:
        for line in commands:
            command, _, number = line.strip().partition(" ")
            answer: dict[str, float] = {}
            if command == "pace":
                pace.set(float(number))
            elif command == "fetch":
                than = repeat(int(number))
                answer["bytes"] = sum(pool.map(Actor.fetch, actors, than))
            else:
                raise ValueError(f"there is no command {command!r}")
            print(json.dumps({**answer, "at": time.monotonic()}), flush=True)
    pace.end()


def main() -> None:
    """Make actors and obey."""
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--case", choices=SAMPLES, required=True)
    parser.add_argument("--secrets", type=Path, help="folder with token and certificates")
    parser.add_argument("--actors", type=int, default=1, help="in this process")
    asked = parser.parse_args()
    pace, security = Pace(), actor_security(asked.secrets)
    actors = [
        Actor(
            f"{os.getpid()}-{i}",
            Client(HOST, asked.port, security=security, timeout=_TIMEOUT_S),
            SAMPLES[asked.case],
            pace,
            seed=i,
        )
        for i in range(asked.actors)
    ]
    print(json.dumps({"at": time.monotonic()}), flush=True)
    obey(sys.stdin, actors, pace)
    os._exit(0)  # threads may wait for answers that nobody gives any more


if __name__ == "__main__":
    main()
