"""Worker: a learner's receiving side under synthetic actors, which are processes of their own."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

import numpy as np
import torch
from harness import our_version
from inbox_crowd import QUEUE, Crowd, Receiver
from inbox_samples import BEHAVIOUR, SAMPLES, Sample, parcel, segment
from prefetch_ours import build
from setting import measure, report, worker_arguments
from torch import nn

from algorithm.replay.buffer import PrioritizedSampler, ReplayBuffer
from algorithm.run.agent import Agent
from ds.checking import check_parcel
from ds.prefetch import PrefetchedReplay
from ds.protocol import Parcel
from ds.weights import chunks, packed
from ds.wire import decode, encode

SIZES = {"0.3 MB": 300_000, "20 MB": 20_000_000}
CLIENTS, PROCESSES = 64, 4
SENDERS = 2
"""Processes that send while the learner makes updates: more than it takes."""

SHARES = (0.0, 0.1, 0.5, 1.0)
"""Of the parcels that the learner takes at most while it makes updates."""

INTERVALS = (0.005, 0.0005)
"""Of ``sys.setswitchinterval``; the first one is Python's default."""

DRAIN_S = 0.1
"""What was sent at another pace has been stored after so long."""

Answer = dict[str, Any]


def receive(
    case: str, *, secure: bool, actors: Sequence[int], seconds: float, warm_up: float, seed: int
) -> Answer:
    """Parcels as fast as they come, checked and stored, for every number of actors."""
    sample, rows = SAMPLES[case], []
    replay = _replay(sample)
    with (
        _secrets(secure) as folder,
        _receiver(sample, replay, folder) as receiver,
        Crowd(receiver.port, case, folder=folder) as crowd,
    ):
        for number in actors:
            crowd.grow(number)
            crowd.pace(-1)
            receiver.run_for(warm_up)
            before = receiver.usage()
            receiver.run_for(seconds)
            rows.append({"actors": number, **receiver.usage().since(before)})
            crowd.pace(0)
            receiver.run_for(DRAIN_S)
    return {**costs(sample, replay, seed), "rows": rows}


def costs(sample: Sample, replay: ReplayBuffer, seed: int) -> Answer:
    """Bytes of a parcel, and CPU microseconds of what is done with it, each by itself."""
    made = segment(sample, np.random.default_rng(seed))
    one = parcel(made, actor="a", lane=0, number=1, version=0)
    data, specs, carries = encode(one), {BEHAVIOUR: sample.spec}, {BEHAVIOUR: (0,)}
    calls: dict[str, Callable[[], object]] = {
        "decode": lambda: decode(Parcel, data),
        "check": lambda: check_parcel(one, specs, carries, max_length=sample.length),
        "store": lambda: replay.add(made),
    }
    return {"bytes": len(data), "microseconds": {name: _cost(call) for name, call in calls.items()}}


def broadcast(size: int, *, seconds: float, warm_up: float, seed: int) -> Answer:
    """Weights of ``size`` bytes to many actors at once, again and again, while the learner makes updates."""
    agent, replay = build("vectors", seed, 0)
    update = _updating(agent, replay)
    payload = np.random.default_rng(seed).bytes(size)
    modules = {BEHAVIOUR: {"policy": nn.Linear(size // 400, 100, bias=False)}}
    publishing = median(_wall(lambda: chunks(1, packed(modules))) for _ in range(5))
    with (
        _receiver(SAMPLES["pendulum"], replay, None) as receiver,
        Crowd(receiver.port, "pendulum", folder=None, clients=CLIENTS // PROCESSES) as crowd,
    ):
        crowd.grow(PROCESSES)
        alone = measure(update, seconds, warm_up)
        before = receiver.usage()
        with _Broadcasts(receiver, crowd, payload) as broadcasts:
            meanwhile = _beside(update, receiver, seconds, 0.0)
        used = receiver.usage().since(before)
    return {
        "actors": CLIENTS,
        "bytes": size,
        "publish_seconds": publishing,
        "fetch_seconds": broadcasts.seconds,
        "alone": {"updates": alone[0], "seconds": alone[1]},
        "meanwhile": meanwhile,
        "server_cpu": (used["server"] + used["other"]) / len(broadcasts.seconds),
    }


class _Broadcasts:
    """A thread that gives new weights to all actors again and again. A context: it ends behind a whole one.

    seconds: of each, until the last actor had all of them
    """

    def __init__(self, receiver: Receiver, crowd: Crowd, payload: bytes) -> None:
        self._receiver, self._crowd, self._payload = receiver, crowd, payload
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seconds: list[float] = []

    def __enter__(self) -> _Broadcasts:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            version = len(self.seconds) + 1
            pieces = chunks(version, self._payload)
            self._receiver.board.publish(version, pieces)
            begin = time.monotonic()
            answers = self._crowd.tell(f"fetch {version - 1}")
            self.seconds.append(max(answer["at"] for answer in answers) - begin)
            if sum(answer["bytes"] for answer in answers) != CLIENTS * sum(map(len, pieces)):
                raise RuntimeError("not all actors have got the weights")


def learn(*, prefetchers: int, rounds: int, seconds: float, warm_up: float, seed: int) -> Answer:
    """Updates per second beside traffic, by share of the largest and by switch interval, in turns."""
    agent, replay = build("vectors", seed, prefetchers)
    update, rows = _updating(agent, replay), []
    with (
        _receiver(SAMPLES["pendulum"], replay, None) as receiver,
        Crowd(receiver.port, "pendulum", folder=None) as crowd,
    ):

        def step() -> None:
            receiver.take(QUEUE)
            update()

        crowd.grow(SENDERS)
        crowd.pace(-1)
        found = _beside(step, receiver, seconds, warm_up)
        most = found["parcels"] / found["seconds"]
        for number, share in product(range(rounds), SHARES):
            crowd.pace(-1 if share == 1.0 else share * most)
            receiver.run_for(DRAIN_S)
            for interval in INTERVALS[:: 1 if number % 2 else -1]:
                sys.setswitchinterval(interval)
                found = _beside(step, receiver, seconds, warm_up)
                rows.append({"share": share, "interval": interval, **found})
    if isinstance(replay, PrefetchedReplay):
        replay.stop()
    return {"most": most, "rows": rows}


def _beside(step: Callable[[], None], receiver: Receiver, seconds: float, warm_up: float) -> Answer:
    measure(step, 0.0, warm_up)
    before = receiver.usage()
    updates, _ = measure(step, seconds, 0.0)
    return {"updates": updates, **receiver.usage().since(before)}


def _updating(agent: Agent, replay: ReplayBuffer) -> Callable[[], None]:
    """One update, its batch and its priorities."""

    def update() -> None:
        batch = replay.sample()
        if batch is None:
            raise RuntimeError("the replay is not full")
        replay.feedback(agent.sac.update(batch))

    return update


def _replay(sample: Sample) -> ReplayBuffer:
    return ReplayBuffer(
        sample.spec, capacity=sample.capacity, batch_size=256, sampler=PrioritizedSampler(), seed=0
    )


@contextlib.contextmanager
def _receiver(sample: Sample, replay: ReplayBuffer, folder: Path | None) -> Iterator[Receiver]:
    receiver = Receiver(sample, replay, folder=folder)
    try:
        yield receiver
    finally:
        receiver.close()


@contextlib.contextmanager
def _secrets(secure: bool) -> Iterator[Path | None]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) if secure else None


def _cost(call: Callable[[], object], blocks: int = 5, calls: int = 40) -> float:
    """CPU microseconds of this thread, of the best block."""
    found = []
    for _ in range(blocks):
        begin = time.thread_time()
        for _ in range(calls):
            call()
        found.append((time.thread_time() - begin) / calls * 1e6)
    return min(found)


def _wall(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> None:
    """Measure what the command line asks for and print the answer."""
    parser = worker_arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="time measured for each figure")
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds before it that do not count")
    parts = parser.add_subparsers(dest="part", required=True)
    receiving: ArgumentParser = parts.add_parser("receive")
    receiving.add_argument("--case", choices=SAMPLES, required=True)
    receiving.add_argument("--secure", action="store_true", help="token and TLS")
    receiving.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4, 16])
    parts.add_parser("weights").add_argument("--size", choices=SIZES, required=True)
    learning = parts.add_parser("learn")
    learning.add_argument("--prefetchers", type=int, default=0)
    learning.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    times = {"seconds": asked.seconds, "warm_up": asked.warm_up, "seed": asked.seed}
    if asked.part == "receive":
        answer = receive(asked.case, secure=asked.secure, actors=asked.actors, **times)
    elif asked.part == "weights":
        answer = broadcast(SIZES[asked.size], **times)
    else:
        answer = learn(prefetchers=asked.prefetchers, rounds=asked.rounds, **times)
    report("advanced-soft-actor-critic", our_version(), threads=torch.get_num_threads(), **answer)


if __name__ == "__main__":
    main()
