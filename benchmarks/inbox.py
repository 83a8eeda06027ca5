"""How much a learner can receive, how fast weights reach its actors, and what that costs its updates.

Actors are synthetic, in processes of their own, and talk gRPC over 127.0.0.1. They take their share of the
cores: what a learner alone could receive is told by its CPU time, by thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch

from algorithm.agents.sac.config import sac_keys
from algorithm.core.timing import Stopwatch
from algorithm.replay.buffer import ReplayBuffer
from benchmarks.harness import HERE, ROOT, Bench, smoke
from benchmarks.inbox_actor import AGREED, BEHAVIOUR, HOST, MAX_LENGTH, SAMPLES, episode_message, token
from benchmarks.inside import fill, make_agent, make_replay
from benchmarks.samples import make_segment, make_spec
from benchmarks.worker import Answer
from ds.certificates import make
from ds.checking import AcceptanceRules, most_rows
from ds.collector import RemoteCollector
from ds.net.ingest import IngestQueue
from ds.net.security import CERTIFICATE, KEY, LearnerSecurity
from ds.net.server import Server
from ds.net.wire import encode
from ds.registry import ActorRegistry
from ds.service import ParameterStore, Service
from ds.weights import chunks

SIZES = {"0.3 MB": 300_000, "20 MB": 20_000_000}
QUEUE = 5
"""``base_config.episode_queue_size`` by default."""


@smoke(seconds=0.1, cases=["short"], actors=[1], sizes=["0.3 MB"], crowd=1, clients=2)
def inbox(
    bench: Bench,
    _: Any,
    *,
    seconds: float = 1.5,
    cases: list[str] = list(SAMPLES),
    actors: list[int] = [1, 2, 4, 16],
    sizes: list[str] = list(SIZES),
    crowd: int = 4,
    clients: int = 16,
) -> Iterator[Mapping[str, Any]]:
    """What a learner can receive, how fast weights reach 64 actors, and what that costs its updates.

    seconds: of each figure · crowd, clients: processes that fetch weights, and actors in each
    """
    found = []
    for case in cases:
        for secure in (False, True):
            arguments = {"case": case, "secure": secure, "actors": actors, "seconds": seconds}
            found.append(bench.ours("inbox:receive", **arguments))
            print(f"{case}{' TLS' * secure}: {found[-1]['rows'][-1]}", flush=True)
    yield {"receive": found}
    arguments = {"processes": crowd, "clients": clients, "seconds": seconds}
    yield {"weights": {name: bench.ours("inbox:broadcast", size=SIZES[name], **arguments) for name in sizes}}


def receive(case: str, *, secure: bool, actors: list[int], seconds: float) -> Answer:
    """Messages as fast as they come, checked and stored, for every number of actors; of lanes, for one."""
    torch.set_num_threads(1)
    sample, rows = SAMPLES[case], []
    steps = sample.step(np.zeros(sample.lanes, np.int64)) if sample.lanes > 1 else sample.episode()
    size = len(encode(episode_message(steps, actor="a", number=1)))
    replay = make_replay(sample.spec, capacity=sample.capacity)
    with Receiver(case, replay, secure=secure) as receiver:
        for number in actors if sample.lanes == 1 else [1]:
            receiver.grow(case, number)
            while not receiver.collector.steps:  # the first message takes a while where cores are shared
                receiver.collector.step()
            run_for(receiver.collector.step, seconds / 3)
            before = receiver.usage()
            run_for(receiver.collector.step, seconds)
            used = {name: value - before[name] for name, value in receiver.usage().items()}
            messages = used["steps"] / len(steps)
            rate = messages / used["seconds"]
            rows.append(
                {
                    "actors": number,
                    "parcels_per_second": rate,
                    "steps_per_second": used["steps"] / used["seconds"],
                    "mb_per_second": rate * size / 1e6,
                    "server_share": used["server"] / used["seconds"],
                    "cpu_us": {name: used[name] / messages * 1e6 for name in ("server", "other", "main")},
                    "actors_cpu_us": used["actors"] / messages * 1e6,
                }
            )
    return {"case": case, "secure": secure, "bytes": size, "rows": rows}


def broadcast(size: int, *, processes: int, clients: int, seconds: float) -> Answer:
    """Weights of ``size`` bytes to many actors at once, again and again, while the learner makes updates."""
    torch.set_num_threads(1)
    spec = make_spec(3, action=1)
    agent = make_agent(spec, str(HERE / "memory"), "default", ["sac_config.batch_size=256"], 0)
    capacity, n_step = agent.config.replay_config.capacity, sac_keys(agent.config).n_step
    replay = make_replay(spec, capacity=capacity, n_step=n_step)
    fill(replay, make_segment(spec, np.random.default_rng(0), 1000), capacity)
    payload, over = np.random.default_rng(0).bytes(size), threading.Event()
    fetched: list[float] = []

    def update() -> None:
        batch = replay.sample()
        assert batch is not None, "the replay is full"
        replay.feedback(agent.learner.update(batch))

    with Receiver("short", make_replay(SAMPLES["short"].spec, capacity=1000)) as receiver:
        receiver.grow("fetch", processes, clients)

        def send() -> None:
            while not over.is_set():
                pieces = chunks(len(fetched) + 1, payload)
                receiver.weights.publish(len(fetched) + 1, pieces)
                begin = time.monotonic()
                answers = receiver.send(str(len(fetched)))
                fetched.append(max(answer["at"] for answer in answers) - begin)
                if sum(answer["bytes"] for answer in answers) != processes * clients * sum(map(len, pieces)):
                    raise RuntimeError("not all actors have got the weights")

        alone, sender = run_for(update, seconds), threading.Thread(target=send)
        sender.start()
        meanwhile = run_for(update, seconds)
        over.set()
        sender.join()  # behind a whole one
    taken = median(fetched)
    return {
        "actors": processes * clients,
        "bytes": size,
        "fetch_seconds": fetched,
        "seconds": taken,
        "mb_per_second": processes * clients * size / taken / 1e6,
        "updates_per_second": {"alone": alone[0] / alone[1], "meanwhile": meanwhile[0] / meanwhile[1]},
    }


class Receiver:
    """The receiving side of a learner, on a free port of this machine, and its actors. A context.

    secure: with a token and certificates
    """

    def __init__(self, case: str, replay: ReplayBuffer, *, secure: bool = False) -> None:
        spec, carry = SAMPLES[case].spec, (0,)
        most = {BEHAVIOUR: most_rows(spec, carry, MAX_LENGTH, None)}
        self._folder = tempfile.TemporaryDirectory()
        self._secrets, security = self._folder.name if secure else "", LearnerSecurity()
        if secure:
            folder = Path(self._secrets)
            make(folder, [HOST], days=1)
            certificate, key = ((folder / one).read_bytes() for one in (CERTIFICATE, KEY))
            security = LearnerSecurity(token(folder), certificate, key)
        self._queue, self.weights, watch = IngestQueue(QUEUE), ParameterStore({}), Stopwatch()
        actors = ActorRegistry(
            run="benchmark",
            seed=0,
            limit=-1,
            synchronous=False,
            heartbeat=1e6,
            left=self._queue.left,
        )
        recorders: Any = {BEHAVIOUR: replay}
        self.collector = RemoteCollector(
            self._queue,
            actors,
            self.weights,
            recorders,
            before_step=lambda: None,
            watch=watch,
            wait=0.02,
            max_lag={},
        )
        rules = AcceptanceRules(
            agreed=AGREED,
            specs={BEHAVIOUR: spec},
            carry_shapes={BEHAVIOUR: carry},
            most=most,
            synchronous=False,
            room_timeout=2.0,
            room={},
        )
        self._server = Server(
            Service(actors, self._queue, self.weights, rules),
            host=HOST,
            port=0,
            security=security,
            on_fault=lambda kind, what: None,  # such as who is ended in the middle of a message
        )
        self._port = self._server.start()
        self._actors: list[Any] = []
        self._ids = {thread.name: thread.native_id for thread in threading.enumerate()}

    def usage(self) -> dict[str, float]:
        """Wall time; steps stored; CPU seconds: main thread, event loop, gRPC's own, actors."""
        threads = {one.id: one.user_time + one.system_time for one in psutil.Process().threads()}
        server, main = threads.get(self._ids["learner-server"], 0.0), time.thread_time()
        cpu = {"main": main, "server": server, "other": time.process_time() - main - server}
        cpu["actors"] = sum(sum(psutil.Process(one.pid).cpu_times()[:2]) for one in self._actors)
        return {"seconds": time.perf_counter(), "steps": self.collector.steps, **cpu}

    def grow(self, what: str, number: int, clients: int = 1) -> None:
        """So many processes of actors, all registered when this returns."""
        command = [sys.executable, "-m", "benchmarks.inbox_actor", what, str(self._port), str(clients)]
        environment, pipe = os.environ | {"PYTHONPATH": str(ROOT)}, subprocess.PIPE
        new: list[Any] = [
            subprocess.Popen([*command, self._secrets], stdin=pipe, stdout=pipe, text=True, env=environment)
            for _ in range(number - len(self._actors))
        ]
        self._actors += new
        _answers(new)

    def send(self, line: str) -> list[Answer]:
        """What all answer to a line."""
        for process in self._actors:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
        return _answers(self._actors)

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._actors:
            process.kill()  # it may be waiting for room in an inbox that nobody empties
            process.communicate()
        self._queue.close()
        self._server.close(0.0)
        self._folder.cleanup()


def _answers(processes: list[Any]) -> list[Answer]:
    """A line of each. Raises RuntimeError where there is none."""
    lines = [process.stdout.readline() for process in processes]
    if not all(lines):
        raise RuntimeError("a synthetic actor has ended")
    return [json.loads(line) for line in lines]


def run_for(act: Callable[[], object], seconds: float) -> tuple[int, float]:
    """Call ``act`` until so many seconds are over; (calls, seconds taken)."""
    count, begin = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        act()
        count += 1
    return count, elapsed
