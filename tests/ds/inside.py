"""A learner without sockets, on a clock of the test's: service, registry, queue and collector as they are."""

from __future__ import annotations

import asyncio
import json

from algorithm.core.data import State
from algorithm.core.timing import Stopwatch
from ds.checking import AcceptanceRules
from ds.collector import RemoteCollector
from ds.net.ingest import ActorLeft, IngestQueue
from ds.net.protocol import PROTOCOL, Beat, Bye, Hello, Join, Receipt, Welcome
from ds.registry import ActorRegistry
from ds.service import ParameterStore, Service
from tests.ds.messages import CARRIES, SPECS, Clock, step_message

AGREED = {"sac_config.nn": "nn", "base_config.env_args": {"a": [1]}}
BEAT = 2.0
OF_ONE = 2**32
"""The first stream of actor 1."""


def rules(**changes) -> AcceptanceRules:
    plain = {
        "agreed": AGREED, "specs": SPECS, "carry_shapes": CARRIES, "most": dict.fromkeys(SPECS, 10),
        "synchronous": False, "room_timeout": 0.0, "room": {},
    }  # fmt: skip
    return AcceptanceRules(**plain | changes)


class Log:
    """Takes down what it is told to store."""

    def __init__(self) -> None:
        self.told: list[tuple] = []
        self.lags: list[int] = []

    def add_steps(self, steps) -> None:
        self.lags.append(steps.lag)
        for stream in dict.fromkeys(steps.streams.tolist()):
            starts = steps.start_steps[steps.streams == stream]
            self.told.append(("add", stream, int(starts[0]), len(starts)))

    def close(self, stream) -> None:
        self.told.append(("close", stream))


class LearnerSide:
    """A learner; a state goes through JSON. Its loop runs only while a test waits for an answer."""

    def __init__(
        self,
        *,
        size=100,
        limit=-1,
        whole=False,
        lags=None,
        state=None,
        recorders=None,
        **changes,
    ):
        self.loop, self.clock = asyncio.new_event_loop(), Clock()
        self.rules = rules(**changes)
        self.queue = IngestQueue(size, line=2)
        self.actors = ActorRegistry(
            run="gym/x/1", seed=7, limit=limit, synchronous=self.rules.synchronous, heartbeat=BEAT,
            left=self.queue.left, clock=self.clock,
        )  # fmt: skip
        self.parameters = ParameterStore({"d": "near"})
        self.service = Service(self.actors, self.queue, self.parameters, self.rules)
        self.logs = recorders or {name: Log() for name in SPECS}
        self.watch, self.published = Stopwatch(Clock()), 0
        self.collector = RemoteCollector(
            self.queue, self.actors, self.parameters, self.logs, before_step=self._publish, watch=self.watch,
            wait=0.0, whole=whole, max_lag=lags or {},
        )  # fmt: skip
        if state is not None:
            self.notices = self.collector.load_state(State(meta=json.loads(json.dumps(state.meta))))

    def _publish(self) -> None:
        self.published += 1

    def restarted(self, **changes) -> LearnerSide:
        """A learner that goes on from the state of this one."""
        return LearnerSide(state=self.collector.state(), **changes)

    def run(self, answer):
        return self.loop.run_until_complete(answer)

    def begin(self, answer) -> asyncio.Task:
        """Ask, and go on before there is an answer."""
        task = self.loop.create_task(answer)
        self.turn()
        return task

    def turn(self) -> None:
        """The loop does what it can do now."""
        self.run(asyncio.sleep(0.005))

    def hello(self, actor="a", **changes):
        hello = {"protocol": PROTOCOL, "actor": actor, "host": "here", "pid": 3}
        return self.run(self.service.hello(Hello(**hello | changes)))

    def join(self, actor="a", agreed=AGREED, **changes):
        join = {
            "actor": actor, "agreed": json.dumps(agreed), "version": 0,
            "number": 0, "taken_steps": 0,
        }  # fmt: skip
        return self.run(self.service.join(Join(**join | changes)))

    def come(self, *actors, **changes) -> LearnerSide:
        for actor in actors or ("a",):
            assert isinstance(self.hello(actor), Welcome)
            receipt = self.join(actor, **changes)
            assert isinstance(receipt, Receipt) and receipt.state == "taken"
        return self

    def deliver(self, number=1, *chunks, actor="a", **changes):
        return self.run(self.delivering(number, *chunks, actor=actor, **changes))

    def delivering(self, number=1, *chunks, actor="a", **changes):
        return self.service.deliver(step_message(*chunks, actor=actor, number=number, **changes))

    def states(self, *numbers, **changes) -> list[str]:
        """What becomes of these numbers."""
        return [self.deliver(number, **changes).state for number in numbers]

    def beat(self, actor="a", **changes):
        plain = {"actor": actor, "version": 0, "steps": 0, "waiting": 0, "dropped": 0}
        return self.run(self.service.beat(Beat(**plain | changes)))

    def bye(self, actor="a", reason="done") -> None:
        self.run(self.service.bye(Bye(actor=actor, reason=reason)))

    def taken(self) -> list:
        """(actor, number of its message) of all that is in the queue, and who has left."""
        found = []
        while (item := self.queue.take(0)) is not None:
            found.append(item if isinstance(item, ActorLeft) else (item.number, item.message.number))
        return found

    def steps(self, n) -> list:
        """The episodes after each of ``n`` steps, and the count of steps."""
        return [(self.collector.step(), self.collector.steps) for _ in range(n)]

    def closed(self, behaviour="vector") -> list[int]:
        return [told[1] for told in self.logs[behaviour].told if told[0] == "close"]

    def counts(self) -> dict[str, float]:
        """Counts that are not zero."""
        return {name: value for name, value in self.actors.metrics().items() if value}
