"""Messages that are almost right: whatever they say, the learner goes on, and no honest actor notices."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from algorithm.replay.buffer import ReplayBuffer
from algorithm.replay.samplers import UniformSampler
from ds.checking import AHEAD
from ds.net.protocol import (
    PROTOCOL,
    Beat,
    Bye,
    Hello,
    Join,
    Receipt,
    StepMessage,
    WeightRequest,
    WireError,
)
from ds.net.wire import decode, encode
from tests.ds.inside import AGREED, LearnerSide
from tests.ds.messages import CARRIES, SPECS, Chunk, chunk, step_message

FORGER, HONEST = "forger", "honest"
"""Names of two actors. One is drawn by chance: who knew that of the honest one could speak for it."""

OTHERS = [
    Hello(protocol=PROTOCOL, actor=FORGER, host="h", pid=1),
    Join(
        actor=FORGER,
        agreed=json.dumps(AGREED),
        version=1,
        number=0,
        taken_steps=0,
    ),
    Beat(actor=FORGER, version=1, steps=10, waiting=0, dropped=0),
    WeightRequest(actor=FORGER, newer_than=0),
    Bye(actor=FORGER, reason="done"),
]
STEPS = [
    step_message(
        chunk(name, length=length, terminated=True),
        chunk(name, length=1),
        chunk(name, agent=2, length=2),
        Chunk(name, 1, None),
        actor=FORGER,
        ended=((name, 0, 1.5, length),),
    )
    for name in SPECS
    for length in (1, 5)
]
"""Messages with every kind of observation and action."""

INTS = [-(2**63), -1, 0, 1, 2, 3, 63, 2**16, 2**31 - 1, 2**31, 2**53, AHEAD, AHEAD + 9, 2**64 - 1]
REALS = [0.0, -0.0, 1e-300, 3.5e38, 1.7e308, float("inf"), float("-inf"), float("nan")]
SINGLES = [float("nan"), float("inf"), float("-inf"), 0.0, 1.0, -1.0, 8.0, 1e30, 1e-40]
TEXTS = ["", "vector", FORGER, "x" * 65, "\x1b[2J", "\u202e", "y" * 20_000, "[1]", "[" * 9000]
POOLS: dict[type, list[Any]] = {int: INTS, float: REALS, str: TEXTS, bool: [True, False]}
ANYTHING = [None, True, 7, 0.5, "x", [], {}, b"x", msgspec.msgpack.Ext(1, b"\x09\x01\xff\xff\xff\xff")]


def pieces_of(value: Any, put: Callable[[Any], None]) -> Iterator[tuple[Any, Callable[[Any], None]]]:
    """Every piece of a structure, containers included, with what puts another one in its place."""
    yield value, put
    items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, one in list(items):
        yield from pieces_of(one, partial(value.__setitem__, key))


def forged(message: object, place: int, which: int, how: int) -> bytes:
    """The bytes of ``message`` after a change in its structure, in what describes an array, or in numbers."""
    body = bytearray(encode(message))
    end = 4 + int.from_bytes(body[:4], "little")
    if how > 2 and len(body) > end:  # NaN, infinity, choices that are not there, agents of no number
        at = end + (place % (len(body) - end)) & ~3
        new = struct.pack("<f", SINGLES[which % len(SINGLES)]) if how == 3 else struct.pack("<I", which)
        body[at : at + 4] = new[: len(body) - at]
        return bytes(body)
    structure = msgspec.msgpack.decode(body[4:end])
    pieces = list(pieces_of(structure, lambda new: None))[2:]  # not the list itself, nor its type
    value, put = pieces[place % len(pieces)]
    if isinstance(value, msgspec.msgpack.Ext) and how != 1:  # another dtype, or other dimensions
        data = bytearray(value.data)
        data[place % len(data)] = which % 256
        put(msgspec.msgpack.Ext(1, bytes(data)))
    elif isinstance(value, list) and how > 1:
        put([value[: which % 3], value * (which % 600)][how % 2])
    else:
        pool = ANYTHING if how == 1 else POOLS.get(type(value), ANYTHING)
        put(pool[which % len(pool)])
    packed = msgspec.msgpack.encode(structure)
    return len(packed).to_bytes(4, "little") + packed + bytes(-(4 + len(packed)) % 16) + arrays_of(body, end)


def arrays_of(body: bytearray, end: int) -> bytes:
    """The numbers behind a message's structure."""
    return bytes(body[end + -end % 16 :])


async def meets(side: LearnerSide, kind: type, body: bytes) -> object:
    """Return the answer of the learner, as its server does it."""
    service = side.service
    try:
        message = decode(kind, body)
    except WireError:
        return None
    if isinstance(message, WeightRequest):
        return service.weights(message)
    answers = {
        Hello: service.hello, Join: service.join, StepMessage: service.deliver, Beat: service.beat,
        Bye: service.bye,
    }  # fmt: skip
    answer = await answers[kind](message)
    assert answer is None or decode(type(answer), encode(answer)) == answer
    return answer


def store(side: LearnerSide) -> None:
    """Store what came, as the training does."""
    for _ in range(100):
        for episode in side.collector.step():
            assert abs(episode.total) < float("inf")
        if side.collector._unreleased is None and not side.queue._items:
            return
    raise AssertionError("it does not come to an end")


numbers = st.integers(0, 2**16)


@pytest.mark.fault("F31")
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(st.tuples(st.booleans(), numbers, numbers, numbers, st.integers(0, 4)), max_size=12))
def test_whatever_almost_right_messages_say_the_learner_goes_on(plan) -> None:
    replays = {
        name: ReplayBuffer(
            spec, capacity=64, batch_size=2, carry_shape=CARRIES[name], sampler=UniformSampler()
        )
        for name, spec in SPECS.items()
    }
    side = LearnerSide(size=4, limit=8, recorders=replays)
    side.parameters.publish(1, [b"w"])
    side.come(HONEST)
    number = 0
    for is_steps, index, *change in plan:
        if side.actors.number(FORGER) is None:
            side.come(FORGER)
        messages = STEPS if is_steps else OTHERS
        message = messages[index % len(messages)]
        if isinstance(message, StepMessage):  # else it would have come before
            number += 1
            message = replace(message, number=number, version=side.parameters.newest)
        before = side.parameters.next_version
        side.run(meets(side, type(message), forged(message, *change)))
        store(side)
        assert before <= side.parameters.next_version <= before + AHEAD
    steps = side.collector.steps
    honest = encode(step_message(chunk(terminated=True), actor=HONEST))
    receipt = side.run(meets(side, StepMessage, honest))
    assert isinstance(receipt, Receipt) and receipt.state == "taken"
    store(side)
    assert side.collector.steps - steps == 3
    assert len(json.dumps(side.collector.state().meta, allow_nan=False)) < 2**20
    assert all(abs(value) < 2**62 for value in side.collector.metrics().values())
