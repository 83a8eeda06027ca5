"""Messages that are almost right: whatever they say, the learner goes on, and no honest actor notices."""

from __future__ import annotations

import gc
import itertools
import json
import os
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import psutil
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from algorithm.evaluation.statistics import mean_interval
from algorithm.replay.buffer import ReplayBuffer, UniformSampler
from ds.checking import AHEAD
from ds.compatibility import digest
from ds.protocol import (
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
from ds.wire import SCHEMA, decode, encode, sender
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
TEXTS = [
    "",
    "default",
    "nobody",
    FORGER,
    "x" * 65,
    "\x1b[2J",
    "\u202e",
    "y" * 20_000,
    "[1]",
    '{"x": NaN}',
    "[" * 9000,
    '{"a":' * 2000,
]
LENGTHS = [0, 1, 2, 3, 5, 12, 13, 2**16, 2**31, 2**32 - 1]

changes = st.lists(
    st.tuples(st.integers(0, 2**16), st.integers(0, 2**16), st.integers(0, 2**16)), min_size=0, max_size=4
)


def leaves(value: Any, put: Callable[[Any], None]) -> Iterator[tuple[Any, Callable[[Any], None]]]:
    """Every piece of a structure, containers included, with what puts another one in its place."""
    yield value, put
    if isinstance(value, list):
        for i, one in enumerate(value):
            yield from leaves(one, lambda new, i=i: value.__setitem__(i, new))
    elif isinstance(value, dict):
        for key, one in list(value.items()):
            yield from leaves(one, lambda new, key=key: value.__setitem__(key, new))


def fields_of(holder: list[Any]) -> Iterator[tuple[Any, Callable[[Any], None]]]:
    """Of the message in a list; its type, the first of all, stays."""
    yield from itertools.islice(leaves(holder[0], lambda new: holder.__setitem__(0, new)), 2, None)
    yield holder[0], lambda new: holder.__setitem__(0, new)


def described(value: msgspec.msgpack.Ext, which: int, how: int) -> msgspec.msgpack.Ext:
    """An array of another dtype or shape, its bytes as they are."""
    code, dimensions = value.data[:2]
    shape = list(struct.unpack(f"<{dimensions}I", value.data[2:]))
    if how % 3 == 0:
        code = which % 13
    elif how % 3 == 1 and shape:
        shape[which % len(shape)] = LENGTHS[how % len(LENGTHS)]
    else:
        shape = shape[::-1] if which % 2 else [*shape, 1]
    return msgspec.msgpack.Ext(value.code, struct.pack(f"<BB{len(shape)}I", code, len(shape), *shape))


def shortened(value: list[Any], which: int, how: int) -> list[Any]:
    """A list with fewer elements, more, or in another order."""
    at = which % (len(value) + 1)
    return [value[:at], value + value[:at], value[::-1], value * (which % 600)][how % 4]


def cut(value: dict[str, Any], which: int, how: int) -> dict[str, Any]:
    """A mapping with fewer keys, maybe with an unknown one."""
    keys = sorted(value)
    return {key: value[key] for key in keys[: which % (len(keys) + 1)]} | ({"more": 1} if how % 2 else {})


def near(value: int, which: int, how: int) -> int:
    """A remarkable number, or a neighbour."""
    return INTS[which % len(INTS)] if how % 2 else max(-(2**63), min(2**64 - 1, value + which % 5 - 2))


CHANGES: dict[type, Callable[[Any, int, int], Any]] = {
    bool: lambda value, which, how: not value,
    int: near,
    float: lambda value, which, how: REALS[which % len(REALS)],
    str: lambda value, which, how: TEXTS[which % len(TEXTS)],
    list: shortened,
    dict: cut,
    msgspec.msgpack.Ext: described,
}


def changed(value: Any, which: int, how: int) -> Any:
    """Another value in its place, usually of the same type."""
    if how % 16 == 15:
        return [None, True, 7, 0.5, "x", [], {}, b"x"][which % 8]
    change = CHANGES.get(type(value))
    return change(value, which, how) if change else [0, 0]


def forged(message: object, mutations: list[tuple[int, int, int]]) -> bytes:
    """The bytes of ``message`` after some changes, in its structure and in the numbers of its arrays."""
    body = encode(message)
    (length,) = struct.unpack_from("<I", body, 4)
    tail = bytearray(body[8 + length + (-(8 + length)) % 8 :])
    holder = [msgspec.msgpack.decode(body[8 : 8 + length])]
    for place, which, how in mutations:
        if how % 5 == 4 and tail:  # numbers of an array: NaN, infinity, choices that are not there
            at = place % len(tail) & ~3
            tail[at : at + 4] = struct.pack("<f", REALS[which % 3 + 6])[: len(tail) - at]
            continue
        pieces = list(fields_of(holder))
        counts = [piece for piece in pieces if type(piece[0]) in (int, float)]
        if place % 2 and counts:  # half of all changes
            pieces = counts
        value, put = pieces[place // 2 % len(pieces)]
        put(changed(value, which, how))
    structure = msgspec.msgpack.encode(holder[0])
    head = struct.pack("<B3xI", SCHEMA, len(structure)) + structure
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
        self.returns: list[float] = []
        self.number, self.outcomes = 0, dict[str, int]()
        self.parameters.publish(1, [b"w"])
        self.come(HONEST)

    def meets(self, kind: str, body: bytes) -> None:
        """As the server does it. Raises whatever is a defect."""
        self.clock.now += 0.01
        if self.actors.number(FORGER) is None:
            self.come(FORGER)
        before = self.parameters.next_version
        outcome = self.run(self._answer(KINDS[kind], body))
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
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
        if isinstance(message, WeightRequest):
            self.service.weights(message)
            return "weights"
        answers = {
            Hello: self.service.hello, Join: self.service.join,
            TrajectoryMessage: self.service.deliver, Beat: self.service.beat, Bye: self.service.bye,
        }  # fmt: skip
        answer = await answers[kind](message)
        if answer is not None:
            assert decode(type(answer), encode(answer)) == answer
        return answer.state if isinstance(answer, Receipt) else type(answer).__name__

    def step(self) -> None:
        """The training's chunk: what came is stored, drawn and told of."""
        for _ in range(2000):  # 5 trajectories of 112 steps at the most, and who has left
            self.returns += [episode.total for episode in self.collector.step()]
            if self.collector._unreleased is None and not self.queue._items:
                break
        else:
            raise AssertionError("it does not come to an end")
        del self.returns[:-100]
        if self.returns:
            assert abs(mean_interval(self.returns).mean) < float("inf")

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
        state = json.dumps(self.collector.state().meta, allow_nan=False)
        assert len(state) < 2**20
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


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.fault("F31")
def test_a_learner_that_is_attacked_for_long() -> None:
    """``FUZZ_SECONDS`` of it, ten minutes if nothing is said; the memory stays as it is."""
    until = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "600"))
    learner, used, rounds = Learner(), list[int](), 0

    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=QUIET)
    @given(sequences)
    def attacked(messages) -> None:
        if time.monotonic() < until:
            attack(learner, messages)
            learner.goes_on()

    while time.monotonic() < until:
        seed(rounds)(attacked)()
        rounds += 1
        gc.collect()
        used.append(psutil.Process().memory_info().rss >> 10)
    number = sum(learner.outcomes.values())
    print(f"\n{rounds} rounds, {number:,} messages: {learner.outcomes}; KiB: {used[:: len(used) // 20 + 1]}")
    assert used[-1] - used[len(used) // 4] < 64 * 1024
