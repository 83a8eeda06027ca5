"""A process of synthetic actors. They send episodes drawn once, as fast as the learner takes them.

With ``lanes`` an actor sends what its recorder is given: steps of 1,024 environments, drawn once.
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
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import numpy as np

from algorithm.core.data import Int, StepBatch
from algorithm.core.spec import AgentSpec
from benchmarks.samples import make_segment, make_spec
from ds.checking import most_rows
from ds.net.client import Client
from ds.net.link import Link
from ds.net.protocol import (
    PROTOCOL,
    Episodes,
    Hello,
    Join,
    Receipt,
    StepMessage,
    Unreachable,
    WeightRequest,
    Welcome,
)
from ds.net.security import AUTHORITY, TOKEN, ActorSecurity
from ds.net.send_queue import SendQueue
from ds.step_writer import StepWriter

BEHAVIOUR, HOST = "default", "127.0.0.1"
MAX_LENGTH = 500
"""``base_config.max_episode_length`` by default."""

AGREED: Mapping[str, int] = {}


@dataclass(frozen=True)
class Sample:
    """spec: of the agent · length: of an episode · capacity: rows of the replay · lanes: agents."""

    spec: AgentSpec
    length: int
    capacity: int
    lanes: int = 1

    def episode(self) -> StepBatch:
        """A whole one of random numbers."""
        return self._steps(np.zeros(self.length, np.int64), np.arange(self.length), own=1)

    def step(self, start_steps: Int) -> StepBatch:
        """One of all lanes."""
        return self._steps(np.arange(self.lanes), start_steps, own=self.lanes)

    def _steps(self, agents: Int, start_steps: Int, *, own: int) -> StepBatch:
        made = make_segment(self.spec, np.random.default_rng(0), len(agents))
        return StepBatch(
            streams=agents,
            start_steps=start_steps,
            obs={name: value[:own] for name, value in made.obs.items()},
            action_mask=made.action_mask[:own],
            carry=made.carry[:own],
            next_obs={name: value[1:] for name, value in made.obs.items()},
            next_action_mask=made.action_mask[1:],
            next_carry=made.carry[1:],
            action=made.action,
            z=made.z,
            behaviour_logp=made.behaviour_logp,
            reward=made.reward,
            terminated=made.terminated,
            truncated=start_steps == self.length - 1,
        )


SAMPLES = {
    "vectors": Sample(make_spec(27, action=6), 500, 2**18),
    "images": Sample(make_spec(84, 84, 1, branches=(6,)), 100, 2**14),
    "short": Sample(make_spec(4, branches=(2,)), 20, 2**18),
    "lanes": Sample(make_spec(27, action=6), 200, 2**18, lanes=1024),
}


def episode_message(steps: StepBatch, actor: str, number: int) -> StepMessage:
    """One episode of one agent."""
    ended = Episodes(agents=np.zeros(1, np.int64), returns=np.ones(1), lengths=np.full(1, len(steps)))
    return StepMessage(
        actor=actor,
        number=number,
        version=0,
        dropped=0,
        closed={},
        steps={BEHAVIOUR: steps},
        episodes={BEHAVIOUR: ended},
        agents={BEHAVIOUR: np.zeros(1, np.int64)},
    )


def token(folder: Path) -> str:
    """That everybody shows."""
    return (folder / TOKEN).read_text().strip()


def connect(port: int, secrets: str) -> Client:
    """A client. secrets: folder of token and certificates, or none."""
    security, folder = ActorSecurity(), Path(secrets)
    if secrets:
        security = ActorSecurity(token(folder), (folder / AUTHORITY).read_bytes())
    return Client(HOST, port, security=security, timeout=60.0)


def hello(name: str) -> Hello:
    """Of the actor of this name."""
    return Hello(protocol=PROTOCOL, actor=name, host="benchmark", pid=1)


def join(name: str, port: int, secrets: str) -> Client:
    """A client registered by its name."""
    client = connect(port, secrets)
    client.ask(hello(name), Welcome)
    client.ask(Join(actor=name, agreed="{}", version=0, number=0, taken_steps=0), Receipt)
    return client


def send(client: Client, name: str, steps: StepBatch) -> None:
    """Send an episode again and again; ends the process with the learner, or where one is refused."""
    for number in count(1):
        state = "again"
        while state == "again":
            try:
                state = client.ask(episode_message(steps, name, number), Receipt).state
            except Unreachable:
                os._exit(0)
        if state != "taken":
            print(f"{name}: an episode is {state}", file=sys.stderr)
            os._exit(1)


def send_lanes(sample: Sample, port: int, secrets: str) -> None:
    """Send steps of all lanes as an actor does, with all that it does but to act."""
    link = Link(connect(port, secrets), hello("lanes"), where=HOST, patience=-1, show=lambda _: None)
    most = most_rows(sample.spec, (0,), MAX_LENGTH, None)
    writer, queue = StepWriter({BEHAVIOUR: most}, max_length=MAX_LENGTH), SendQueue(link, size=64)
    link.start()
    link.join({})
    queue.start()
    recorder, agents = writer.recorders[BEHAVIOUR], {BEHAVIOUR: np.arange(sample.lanes)}
    at = np.random.default_rng(0).integers(sample.length, size=sample.lanes)
    steps = sample.step(at)
    print(json.dumps({"at": time.monotonic()}), flush=True)
    while True:
        recorder.add_steps(replace(steps, start_steps=at, truncated=at == sample.length - 1))
        at = np.where(at == sample.length - 1, 0, at + 1)
        for message in writer.flush(agents=agents, episodes=()):
            queue.put(message)


def main(what: str, port: str, number: str, secrets: str = "") -> None:
    """Make so many actors that send a sample, or ``fetch``."""
    if what in SAMPLES and SAMPLES[what].lanes > 1:
        send_lanes(SAMPLES[what], int(port), secrets)
    names = [f"{os.getpid()}-{i}" for i in range(int(number))]
    clients = [join(name, int(port), secrets) for name in names]
    print(json.dumps({"at": time.monotonic()}), flush=True)
    if what in SAMPLES:
        for name, client in zip(names, clients, strict=True):
            arguments = (client, name, SAMPLES[what].episode())
            threading.Thread(target=send, args=arguments, daemon=True).start()
    with ThreadPoolExecutor(len(clients)) as pool:
        for line in sys.stdin:
            wanted = (WeightRequest(actor=name, newer_than=int(line)) for name in names)
            got = pool.map(lambda client, one: sum(map(len, client.weights(one))), clients, wanted)
            print(json.dumps({"bytes": sum(got), "at": time.monotonic()}), flush=True)
    os._exit(0)  # threads may wait for answers that nobody gives any more


if __name__ == "__main__":
    main(*sys.argv[1:])
