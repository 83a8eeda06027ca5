"""A process of synthetic actors. They send episodes drawn once, as fast as the learner takes them.

With ``fetch`` they send none: for each line ``V`` of the standard input all fetch weights newer than version
V at once. A line of JSON follows when they are registered, and when each line is carried out.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from algorithm.core.data import Segment
from algorithm.core.spec import AgentSpec
from benchmarks.samples import make_segment, make_spec
from ds.net.client import Client
from ds.net.protocol import (
    PROTOCOL,
    Hello,
    Join,
    TrajectoryChunk,
    TrajectoryMessage,
    Transitions,
    Unreachable,
    WeightRequest,
)
from ds.net.security import AUTHORITY, TOKEN, ActorSecurity

BEHAVIOUR, HOST = "default", "127.0.0.1"
CHANNELS = 5  # trajectories of an actor under way at a time: ``episode_sender_process_num`` by default

AGREED: Mapping[str, int] = {}


@dataclass(frozen=True)
class Sample:
    """spec: of the agent · length: of an episode · capacity: rows of the replay."""

    spec: AgentSpec
    length: int
    capacity: int

    def episode(self, seed: int) -> Segment:
        """A whole one of random numbers."""
        return make_segment(self.spec, np.random.default_rng(seed), self.length)


SAMPLES = {
    "vectors": Sample(make_spec(27, action=6), 500, 2**18),
    "images": Sample(make_spec(84, 84, 1, branches=(6,)), 100, 2**14),
    "short": Sample(make_spec(4, branches=(2,)), 20, 2**18),
}


def trajectory(made: Segment, actor: str, channel: int, number: int) -> TrajectoryMessage:
    """One episode of the agent with the channel's number; the learner hands out all its steps at once."""
    length = made.length
    transitions = Transitions(**{name: getattr(made, name) for name in Transitions.__struct_fields__})
    chunk, episode = TrajectoryChunk(BEHAVIOUR, channel, transitions), (BEHAVIOUR, channel, 1.0, length)
    parts: dict[str, Any] = {"chunks": (chunk,), "episodes": (episode,)}
    return TrajectoryMessage(actor=actor, channel=channel, number=number, version=0, dropped=0, **parts)


def token(folder: Path) -> str:
    """That everybody shows."""
    return (folder / TOKEN).read_text().strip()


def join(name: str, port: int, secrets: str) -> Client:
    """A client registered by its name. secrets: folder of token and certificates, or none."""
    security, folder = ActorSecurity(), Path(secrets)
    if secrets:
        security = ActorSecurity(token(folder), (folder / AUTHORITY).read_bytes())
    client = Client(HOST, port, security=security, timeout=60.0)
    client.hello(Hello(protocol=PROTOCOL, actor=name, host="benchmark", pid=1))
    channels = (0,) * CHANNELS
    client.join(Join(actor=name, agreed="{}", version=0, channels=channels, taken_steps=0))
    return client


def send(client: Client, name: str, made: Segment, channel: int) -> None:
    """Send an episode again and again; ends the process with the learner, or where one is refused."""
    for number in count(1):
        state = "again"
        while state == "again":
            try:
                state = client.deliver(trajectory(made, name, channel, number)).state
            except Unreachable:
                os._exit(0)
        if state != "taken":
            print(f"{name}: a trajectory is {state}", file=sys.stderr)
            os._exit(1)


def main(what: str, port: str, number: str, secrets: str = "") -> None:
    """Make so many actors that send a sample, or ``fetch``."""
    names = [f"{os.getpid()}-{i}" for i in range(int(number))]
    clients = [join(name, int(port), secrets) for name in names]
    print(json.dumps({"at": time.monotonic()}), flush=True)
    if what in SAMPLES:
        for name, client in zip(names, clients, strict=True):
            for channel in range(CHANNELS):
                made = SAMPLES[what].episode(channel)
                threading.Thread(target=send, args=(client, name, made, channel), daemon=True).start()
    with ThreadPoolExecutor(len(clients)) as pool:
        for line in sys.stdin:
            wanted = (WeightRequest(actor=name, newer_than=int(line)) for name in names)
            got = pool.map(lambda client, one: sum(map(len, client.weights(one))), clients, wanted)
            print(json.dumps({"bytes": sum(got), "at": time.monotonic()}), flush=True)
    os._exit(0)  # threads may wait for answers that nobody gives any more


if __name__ == "__main__":
    main(*sys.argv[1:])
