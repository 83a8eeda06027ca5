"""A learner that does what a test says, in place of the network; and time that passes when somebody waits."""

import threading
import time
from collections import deque
from collections.abc import Callable

from ds.net.contact import Clock, Sent
from ds.net.link import Link
from ds.net.protocol import (
    Beat,
    Bye,
    Hello,
    Join,
    LearnerRefused,
    Message,
    Receipt,
    StepMessage,
    Unreachable,
    WeightRequest,
    Welcome,
)
from tests.ds.messages import chunk, step_message

NEVER = 1e6  # heartbeat of an actor whose beats the test makes itself
HELLO = Hello(protocol=1, actor="a1", host="here", pid=1)


def until(true: Callable[[], object]) -> None:
    """Other threads get there; how long it takes them means nothing."""
    for _ in range(20000):
        if true():
            return
        time.sleep(0.0005)
    raise AssertionError("it never comes true")


class FakeClock(Clock):
    """Waiting takes no time, and is noted; who would wait for ``NEVER`` really waits."""

    def __init__(self) -> None:
        self.time = 0.0
        self.waits: list[float] = []
        self._plan: list[tuple[float, Callable[[], None]]] = []
        self._lock = threading.Lock()

    def at(self, moment: float, action: Callable[[], None]) -> None:
        self._plan.append((moment, action))

    def now(self) -> float:
        return self.time

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if seconds >= NEVER:
            return event.wait()
        with self._lock:
            self.time += seconds
            self.waits.append(seconds)
            due = [action for moment, action in self._plan if moment <= self.time]
            self._plan = [(moment, action) for moment, action in self._plan if moment > self.time]
        for action in due:
            action()
        time.sleep(0.0002)  # the others' turn
        return event.is_set()


class FakeLearner:
    """The client of a learner that is not there: ``answers`` overrule what it says next."""

    def __init__(self, *, synchronous: bool = False, heartbeat: float = NEVER, run: str = "r") -> None:
        self.up, self.run, self.behaviour = True, run, ""
        self.learner, self.synchronous, self.heartbeat = 1, synchronous, heartbeat
        self.version, self.finished, self.refusal = 1, False, ""
        self.known: set[str] = set()
        self.joined: set[str] = set()
        self.answers: deque[str | Exception] = deque()
        self.last = 0
        self.came: list[StepMessage] = []  # every time
        self.stored: list[StepMessage] = []  # once
        self.said: list[object] = []  # hello, join, beat, wanted, bye
        self.closed = 0
        self.gate = threading.Event()  # a deliver waits for it
        self.gate.set()
        self.inside = 0
        self.on_deliver: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def restart(self) -> None:
        """Another process, which has read the checkpoint of this one."""
        self.learner += 1
        self.known, self.joined, self.up = set(), set(), True

    def of(self, kind: type) -> list:
        return [message for message in self.said if isinstance(message, kind)]

    def hear(self, message: object) -> None:
        if not self.up:
            raise Unreachable("connection refused")
        if self.refusal:
            raise LearnerRefused(self.refusal)
        if not isinstance(message, StepMessage):
            self.said.append(message)

    def receipt(self, state: str, reason: str = "") -> Receipt:
        state = "finished" if self.finished else state
        early = self.version < 3
        told = {"warming_up": {self.behaviour: early}, "lessons": {"d": "near" if early else "far"}}
        return Receipt(state=state, version=self.version, reason=reason, **told)

    def ask(self, message: object, kind: type) -> Message:
        answers = {Hello: self.hello, Join: self.join, StepMessage: self.deliver, Beat: self.beat}
        return answers[type(message)](message)

    def hello(self, hello: Hello) -> Welcome:
        self.hear(hello)
        self.known.add(hello.actor)
        return Welcome(
            run=self.run, learner=str(self.learner), seed=5, slot=0, number=len(self.of(Hello)) - 1,
            synchronous=self.synchronous, heartbeat=self.heartbeat,
        )  # fmt: skip

    def join(self, join: Join) -> Receipt:
        self.hear(join)
        if join.actor not in self.known:
            return self.receipt("unknown")
        self.joined.add(join.actor)
        return self.receipt("taken")

    def deliver(self, message: StepMessage) -> Receipt:
        self.inside += 1
        self.gate.wait()
        self.inside -= 1
        self.on_deliver()
        self.hear(message)
        with self._lock:
            self.came.append(message)
            answer = self.answers.popleft() if self.answers else "taken"
            if isinstance(answer, Exception):
                raise answer
            if message.actor not in self.joined:
                return self.receipt("unknown")
            if self.finished:
                return self.receipt("finished")
            if answer in ("taken", "taken but lost") and message.number > self.last:
                self.stored.append(message)
            if answer in ("taken", "taken but lost", "rejected"):
                self.last = max(self.last, message.number)
            if answer == "taken but lost":
                raise Unreachable("deadline exceeded")
            return self.receipt(answer, f"because it is {answer}")

    def beat(self, beat: Beat) -> Receipt:
        self.hear(beat)
        return self.receipt("taken" if beat.actor in self.known else "unknown")

    def weights(self, wanted: WeightRequest) -> list[bytes]:
        self.hear(wanted)
        return [b"weights", str(self.version).encode()] if self.version > wanted.newer_than else []

    def bye(self, bye: Bye) -> None:
        self.hear(bye)

    def close(self) -> None:
        self.closed += 1


class Actor:
    """A link with its surroundings."""

    def __init__(self, learner: FakeLearner, *, patience: float = -1, stopped=lambda: False) -> None:
        self.clock, self.lines = FakeClock(), list[str]()
        self.link = Link(
            learner, HELLO, where="host:1", patience=patience, show=self.lines.append,
            stopped=stopped, clock=self.clock, draw=lambda: 0.0,
        )  # fmt: skip

    def join(self, **sent) -> Link:
        """Find the learner and join."""
        self.link.start()
        self.link.sent = Sent(**sent)
        self.link.join({"a.b": 1})
        return self.link


def gathered(*, steps: int = 2) -> StepMessage:
    """A message of ``steps`` transitions that has no actor and number yet."""
    return step_message(chunk(length=steps), actor="", number=0)
