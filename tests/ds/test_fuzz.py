"""Messages that are almost right: whatever they say, the learner goes on, and no honest actor notices."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from ds.checking import AHEAD
from ds.compatibility import digest
from ds.net.protocol import (
    PROTOCOL,
    Beat,
    Bye,
    Hello,
    Join,
    Receipt,
    TrajectoryChunk,
    TrajectoryMessage,
    WeightRequest,
    WireError,
)
from ds.net.wire import SCHEMA, aligned, decode, encode, sender
from tests.ds.inside import AGREED, LearnerSide
from tests.ds.trajectories import CARRIES, SPECS, chunk, trajectory

KINDS = {
    "Hello": Hello,
    "Join": Join,
    "TrajectoryMessage": TrajectoryMessage,
    "Beat": Beat,
    "Bye": Bye,
    "WeightRequest": WeightRequest,
}
FORGER, HONEST = "forger", "honest"
MAX_LENGTH, CAPACITY = 12, 64

VALID = [
    Hello(protocol=PROTOCOL, actor=FORGER, host="h", pid=1, versions={"torch": "2"}),
    Join(
        actor=FORGER,
        agreed=json.dumps(AGREED),
        digest=digest(AGREED),
        version=1,
        channels=(0, 0),
        taken_steps=0,
    ),
    Beat(actor=FORGER, version=1, steps=10, waiting=0, dropped=0),
    WeightRequest(actor=FORGER, newer_than=0),
    Bye(actor=FORGER, reason="done"),
    *(
        trajectory(
            chunk(name, length=n, **end),
            TrajectoryChunk(name, 1, None),
            actor=FORGER,
            episodes=((name, 0, 1.5, n),),
        )
        for name in SPECS
        for n, end in ((1, {}), (5, {"terminated": True}), (12, {"truncated": True}))
    ),
]
"""Of every kind, and trajectories of every kind of observation and action.

An actor's name is drawn by chance: who knew that of the honest one could speak for it.
"""

OTHERS = 5
"""Of them no trajectories."""

INTS = [-(2**63), -1, 0, 1, 2, 63, 2**16, 2**31 - 1, 2**31, 2**53, AHEAD, AHEAD + 9, 2**63 - 1, 2**64 - 1]
REALS = [0.0, -0.0, 1e-300, -1.0, 3.5e38, 1.7e308, float("inf"), float("-inf"), float("nan")]
TEXTS = ["", "default", "nobody", FORGER, "x" * 65, "\x1b[2J", "\u202e", "y" * 20_000, "[1]", "[" * 9000]
LENGTHS = [0, 1, 2, 3, 5, 12, 13, 2**16, 2**31, 2**32 - 1]
ANYTHING = [None, True, 7, 0.5, "x", [], {}, b"x"]
POOLS: dict[type, list[Any]] = {int: INTS, float: REALS, str: TEXTS, bool: [True, False]}

changes = st.lists(st.tuples(*[st.integers(0, 2**16)] * 3), max_size=4)
"""Of each change: where, to what, and how."""


def pieces_of(value: Any, put: Callable[[Any], None]) -> Iterator[tuple[Any, Callable[[Any], None]]]:
    """Every piece of a structure, containers included, with what puts another one in its place."""
    yield value, put
    items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, one in list(items):
        yield from pieces_of(one, partial(value.__setitem__, key))


def described(value: msgspec.msgpack.Ext, which: int, how: int) -> msgspec.msgpack.Ext:
    """An array of another dtype or shape, its bytes as they are."""
    code, dimensions = value.data[:2]
    shape = [*struct.unpack(f"<{dimensions}I", value.data[2:]), 1]
    shape[which % len(shape)] = LENGTHS[how % len(LENGTHS)]
    code, shape = (which % 13, shape[:-1]) if how % 2 else (code, shape)
    return msgspec.msgpack.Ext(value.code, struct.pack(f"<BB{len(shape)}I", code, len(shape), *shape))


def changed(value: Any, which: int, how: int) -> Any:
    """Another value in its place, usually of the same type and often a near or a remarkable one."""
    if how % 16 == 15 or value is None:
        return ANYTHING[which % len(ANYTHING)]
    if type(value) is int and how % 2:
        return min(2**64 - 1, value + which % 5 - 2)
    if isinstance(value, list):
        return [value[: which % 5], value * (which % 600), value[::-1]][how % 3]
    if isinstance(value, dict):
        return dict(list(value.items())[: which % 3]) | ({"more": 1} if how % 2 else {})
    if isinstance(value, msgspec.msgpack.Ext):
        return described(value, which, how)
    pool = POOLS[type(value)]
    return pool[which % len(pool)]


def forged(message: object, mutations: list[tuple[int, int, int]]) -> bytes:
    """The bytes of ``message`` after some changes, in its structure and in the numbers of its arrays."""
    body = encode(message)
    (length,) = struct.unpack_from("<I", body, 4)
    tail = bytearray(body[aligned(8 + length) :])
    structure = msgspec.msgpack.decode(body[8 : 8 + length])
    for place, which, how in mutations:
        if how % 5 == 4 and tail:  # numbers of an array: NaN, infinity, choices that are not there
            at = place % len(tail) & ~3
            tail[at : at + 4] = struct.pack("<f", REALS[which % 3 + 6])[: len(tail) - at]
            continue
        pieces = list(pieces_of(structure, lambda new: None))[2:]  # not the list itself, nor its type
        counts = [piece for piece in pieces if type(piece[0]) in (int, float)]
        if place % 2 and counts:  # half of all changes
            pieces = counts
        value, put = pieces[place // 2 % len(pieces)]
        put(changed(value, which, how))
    packed = msgspec.msgpack.encode(structure)
    head = struct.pack("<B3xI", SCHEMA, len(packed)) + packed
    return head + bytes(-len(head) % 8 if tail else 0) + bytes(tail)


class Learner(LearnerSide):
    """All of one but its socket and its networks; an honest actor is with it."""

    def __init__(self) -> None:
        replays = {
            name: ReplayBuffer(
                spec, capacity=CAPACITY, batch_size=2, carry_shape=CARRIES[name], sampler=UniformSampler()
            )
            for name, spec in SPECS.items()
        }
        super().__init__(
            size=4, limit=8, max_lag=50, max_length=MAX_LENGTH, silence=2 * MAX_LENGTH, recorders=replays
        )
        self.number, self.outcomes = 0, Counter[str]()
        self.parameters.publish(1, [b"w"])
        self.come(HONEST)

    def meets(self, kind: str, body: bytes) -> None:
        """As the server does it. Raises whatever is a defect."""
        self.clock.now += 0.01
        if self.actors.number(FORGER) is None:
            self.come(FORGER)
        before = self.parameters.next_version
        self.outcomes[self.run(self._answer(KINDS[kind], body))] += 1
        self.step()
        assert before <= self.parameters.next_version <= before + AHEAD

    async def _answer(self, kind: type, body: bytes) -> str:
        try:
            actor = sender(body)
            if actor and not self.service.has_registered(actor):
                return "unknown"
            message = decode(kind, body)
        except WireError:
            return "no message"
        service = self.service
        if isinstance(message, WeightRequest):
            service.weights(message)
            return "weights"
        answers = {
            Hello: service.hello, Join: service.join, TrajectoryMessage: service.deliver, Beat: service.beat,
            Bye: service.bye,
        }  # fmt: skip
        answer = await answers[kind](message)
        assert answer is None or decode(type(answer), encode(answer)) == answer
        return answer.state if isinstance(answer, Receipt) else type(answer).__name__

    def step(self) -> None:
        """What the training does: what came is stored, and who has left."""
        for _ in range(2000):  # 5 trajectories of 112 steps at the most
            for episode in self.collector.step():
                assert abs(episode.total) < float("inf")
            if self.collector._unreleased is None and not self.queue._items:
                return
        raise AssertionError("it does not come to an end")

    def goes_on(self) -> None:
        """An honest actor's trajectory is taken and stored, and the state can be written."""
        self.number += 1
        self.parameters.publish(self.parameters.next_version, [b"w"])
        version, steps = self.parameters.newest, self.collector.steps
        one = trajectory(chunk(terminated=True), actor=HONEST, number=self.number, version=version)
        if self.actors.number(HONEST) is None:  # it has been silent for too long
            self.come(HONEST)
        receipt = self.run(self.service.deliver(decode(TrajectoryMessage, encode(one))))
        assert receipt.state == "taken", receipt
        self.step()
        assert self.collector.steps - steps == 3
        assert len(json.dumps(self.collector.state().meta, allow_nan=False)) < 2**20
        for replay in self.logs.values():
            replay.sample()
        for value in self.collector.metrics().values():
            assert abs(value) < 2**62


def attack(learner: Learner, messages: list[tuple[int, list[tuple[int, int, int]]]]) -> None:
    for index, mutations in messages:
        few = index % 2  # half of all messages are no trajectories
        message = VALID[index // 2 % OTHERS if few else OTHERS + index // 2 % (len(VALID) - OTHERS)]
        if isinstance(message, TrajectoryMessage):  # else it would have come before
            member = learner.actors._living.get(FORGER)
            channel = 0 if member is None or not member.channels else member.channels[0]
            message = replace(message, number=channel + 1, version=learner.parameters.newest)
        learner.meets(type(message).__name__, forged(message, mutations))


sequences = st.lists(st.tuples(st.integers(0, 2**16), changes), min_size=1, max_size=12)
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.mark.fault("F31")
@settings(max_examples=60, deadline=None, suppress_health_check=QUIET)
@given(sequences)
def test_whatever_almost_right_messages_say_the_learner_goes_on(messages) -> None:
    learner = Learner()
    attack(learner, messages)
    learner.goes_on()


def test_what_is_not_changed_is_taken() -> None:
    """Else nothing above would reach what it is meant for."""
    learner = Learner()
    trajectories = len(VALID) - OTHERS
    attack(learner, [(2 * i + 1, []) for i in range(OTHERS)] + [(2 * i, []) for i in range(trajectories)])
    assert learner.outcomes == {
        "Welcome": 1, "Joined": 1, "weights": 1, "NoneType": 1, "taken": 1 + trajectories
    }  # fmt: skip
    learner.goes_on()
