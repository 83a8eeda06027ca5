from __future__ import annotations

import random
import struct
import time
import tracemalloc
from dataclasses import dataclass, replace

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.spec import ActionSpec, AgentSpec, ObsSpec
from ds.arrays import DTYPES, EXTENSION, MAX_DIMENSIONS
from ds.codecs import MAX_VALUES, codec_of
from ds.errors import WireError
from ds.protocol import Beat, Bye, Hello, Join, Parcel, Part, Receipt, Refused, Wanted, Welcome
from ds.wire import MAX_STRUCTURE, SCHEMA, decode, encode, sender
from tests.ds.samples import HELLO, JOIN, MESSAGES, WELCOME, arrays, messages, parcel, same, segment

SPEC = AgentSpec(
    ObsSpec(("image", "speed"), ((2, 3, 3), (3,)), ("uint8", "float32")), ActionSpec((3, 2), continuous=2)
)
PARCEL = parcel(Part("walker", 1, segment(SPEC, 4, (2, 3), priority=True)), Part("walker", 2, None))


@dataclass(frozen=True)
class Any_:  # noqa: N801 - a message that holds one array
    array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]


def message(structure: object, tail: bytes = b"", *, schema: int = SCHEMA) -> bytes:
    """A message with a structure of one's own choice; bytes are taken as they are."""
    packed = structure if isinstance(structure, bytes) else msgpack.packb(structure)
    return struct.pack("<B3xI", schema, len(packed)) + packed + tail


def described(code: int, *shape: int) -> msgpack.ExtType:
    return msgpack.ExtType(EXTENSION, struct.pack(f"<BB{len(shape)}I", code, len(shape), *shape))


@given(messages)
def test_what_is_written_is_read(sent: object) -> None:
    assert same(decode(type(sent), encode(sent)), sent)


@given(arrays)
def test_every_array_is_read_as_it_was(array: np.ndarray) -> None:
    received = decode(Any_, encode(Any_(array))).array
    assert same(received, array)
    assert not received.flags.writeable


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0), (0, 3), (2, 3, 5)])
def test_every_dtype_and_shape(dtype: np.dtype, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    assert same(decode(Any_, encode(Any_(array))).array, array)


def test_arrays_that_do_not_lie_in_order_are_written_in_order() -> None:
    array = np.arange(24, dtype=np.int16).reshape(4, 6)
    for view in (array.T, array[::2, 1::2], array[::-1], np.asfortranarray(array)):
        assert same(decode(Any_, encode(Any_(view))).array, np.ascontiguousarray(view))


def test_arrays_are_views_that_are_aligned() -> None:
    data = encode(PARCEL)
    received = decode(Parcel, data).parts[0].segment
    whole = np.frombuffer(data, np.uint8)
    assert received is not None
    for array in (*received.obs.values(), received.carry, received.reward, received.terminated):
        assert np.shares_memory(array, whole)
        assert array.flags.aligned


def test_one_of_two_kinds_is_told_by_its_name() -> None:
    refused = Refused(why="full", reason="no slot")
    assert decode((Welcome, Refused), encode(refused)) == refused
    assert decode((Welcome, Refused), encode(WELCOME)) == WELCOME
    with pytest.raises(WireError, match="none of Welcome, Refused"):
        decode((Welcome, Refused), encode(HELLO))


def test_another_schema_is_told_before_anything_is_read() -> None:
    with pytest.raises(WireError, match="schema 2 and not 1: both sides need the same version"):
        decode(Hello, message(b"rubbish", schema=2))


@pytest.mark.fault("F16")
def test_cut_off_anywhere_it_is_refused() -> None:
    for sent in (PARCEL, HELLO, JOIN, WELCOME):
        data = encode(sent)
        for end in range(len(data)):
            with pytest.raises(WireError):
                decode(type(sent), data[:end])
        with pytest.raises(WireError, match="1 bytes too many"):
            decode(type(sent), data + b"\0")


def survives(data: bytes) -> None:
    """Every kind of message is read or refused."""
    for kind in MESSAGES:
        try:
            decode(kind, data)
        except WireError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 400


@pytest.mark.fault("F16")
@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_random_bytes_are_refused(data: bytes) -> None:
    survives(data)
    survives(message(data))
    for kind in MESSAGES:
        survives(message(b"\x92" + msgpack.packb(kind.__name__) + data))


@pytest.mark.fault("F16")
def test_flipped_bits_are_read_or_refused() -> None:
    rng = random.Random(0)
    for sent in (PARCEL, HELLO, JOIN, WELCOME):
        data = encode(sent)
        for _ in range(400):
            forged = bytearray(data)
            for _ in range(rng.randint(1, 3)):
                forged[rng.randrange(min(len(forged), 500))] ^= 1 << rng.randrange(8)
            survives(bytes(forged))


HUGE = 2**32 - 1
BYE = ["Bye", ["a", "b"]]


@pytest.mark.fault("F16")
@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        (Bye, struct.pack("<B3xI", SCHEMA, HUGE) + b"x", "a structure of 4294967295 bytes"),
        (Bye, message(b"\xdd\xff\xff\xff\xff"), "message: a list of 4294967295 in 0 bytes"),
        (Bye, message(b"\x92\xa3Bye" + b"\xdd\xff\xff\xff\xff" * 999), "Bye: a list of 4294967295 in 4990"),
        (Bye, message(b"\x92\xa3Bye\x92\xdb\xff\xff\xff\xff"), "Bye.actor: the message ends here"),
        (Bye, message(b"\x92\xa3Bye\x92\xc9\xff\xff\xff\xff\x01"), "Bye.actor: 0 exceeds max_ext_len"),
        (
            Join,
            message(b"\x92\xa4Join\x96\xa1a\xdf\xff\xff\xff\xff"),
            "Join.agreed: a map of 4294967295 in 0",
        ),
        (Bye, message(["Bye", ["a"]]), "Bye: 1 fields where 2 are meant"),
        (Bye, message(["Bye", ["a", "b", "c"]]), "Bye: 3 fields where 2 are meant"),
        (Bye, message(["Bye", {"actor": "a", "reason": "b"}]), "Bye: no list where there is one"),
        (Bye, message(["Bye", ["a", 1]]), "Bye.reason: int where str is meant"),
        (Bye, message(["Bye", ["a", b"b"]]), "Bye.reason: bytes is not sent"),
        (Bye, message(["Bye", ["a", ["b"]]]), "Bye.reason: a list where there is none"),
        (Bye, message(["Bye", ["a", {"b": 1}]]), "Bye.reason: a map where there is none"),
        (Bye, message(["Bye", ["a", msgpack.ExtType(7, b"b")]]), "Bye.reason: extension 7 is not known"),
        (Bye, message(["Bye", ["a", msgpack.Timestamp(1)]]), "Bye.reason: Timestamp is not sent"),
        (Bye, message(["Bye", ["a", described(0)]], b"\0" * 5), "Bye.reason: ndarray where str is meant"),
        (Bye, message(b"\x92\xa3Bye\x92\xa1a\xa1\xff"), "Bye.reason: 'utf-8' codec can't decode"),
        (Bye, message(b"\x92\xa3Bye\x92\xa1a\xc1"), "Bye.reason: "),
        (Bye, message([["Bye"], ["a", "b"]]), "message: a list where there is none"),
        (Bye, message(BYE, b"\0\0"), "2 bytes too many"),
        (Bye, message(msgpack.packb(BYE) + b"\0"), "1 bytes too many"),
        (Wanted, message(["Wanted", ["a", True]]), "Wanted.than: bool where int is meant"),
        (Wanted, message(["Wanted", ["a", 1.0]]), "Wanted.than: float where int is meant"),
        (Wanted, message(["Wanted", ["a", None]]), "Wanted.than: NoneType where int is meant"),
        (Receipt, message(["Receipt", ["gone", 1, {}, ""]]), "Receipt.state: none of taken, again"),
        (Receipt, message(["Receipt", [1, 1, {}, ""]]), "Receipt.state: none of taken, again"),
        (Receipt, message(["Receipt", ["taken", 1, {"a": 1}, ""]]), "Receipt.warming_up.a: int where bool"),
        (
            Receipt,
            message(b"\x92\xa7Receipt\x94\xa5taken\x01\x82\xa1a\xc2\xa1a\xc2\xa0"),
            "Receipt.warming_up: a key is no text, or there twice",
        ),
        (
            Receipt,
            message(b"\x92\xa7Receipt\x94\xa5taken\x01\x81\x01\xc2\xa0"),
            "Receipt.warming_up: a key is no text",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_message_names_the_field(kind: type, data: bytes, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        decode(kind, data)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


FLOAT32 = DTYPES.index(np.dtype(np.float32))


@pytest.mark.fault("F16")
@pytest.mark.parametrize(
    ("description", "tail", "reason"),
    [
        (described(FLOAT32, 2**30), b"\0" * 8, "needs 4294967296 bytes, "),
        (described(FLOAT32, 65536, 65536, 65536, 65536), b"", "larger than is sent"),
        (described(FLOAT32, *[HUGE] * 8), b"", "larger than is sent"),
        (described(FLOAT32, HUGE, HUGE, 0), b"", "larger than is sent"),
        (described(FLOAT32, *[1] * (MAX_DIMENSIONS + 1)), b"\0" * 4, "9 dimensions, at most 8"),
        (described(len(DTYPES), 1), b"\0" * 8, "11 is no dtype"),
        (described(255, 1), b"\0" * 8, "255 is no dtype"),
        (msgpack.ExtType(EXTENSION, b""), b"", "the description of an array has 0 bytes"),
        (msgpack.ExtType(EXTENSION, b"\x09"), b"", "the description of an array has 1 bytes"),
        (msgpack.ExtType(EXTENSION, b"\x09\x02\0\0\0\0"), b"", "the description of an array has 6 bytes"),
        (described(0, 3), b"\0\1\2", "a bool is neither 0 nor 1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_forged_array_is_refused(description: msgpack.ExtType, tail: bytes, reason: str) -> None:
    head = message(["Any_", [description]])
    with pytest.raises(WireError, match=reason):
        decode(Any_, head + b"\0" * (-len(head) % 8) + tail)


def test_another_dtype_than_the_fields_is_refused_on_both_sides() -> None:
    part = PARCEL.parts[0]
    assert part.segment is not None
    wrong = replace(part.segment, reward=np.zeros(4))
    with pytest.raises(WireError, match=r"Parcel.parts\[0\].segment.reward: float64 where float32 is meant"):
        encode(parcel(replace(part, segment=wrong)))
    forged = encode(PARCEL).replace(
        bytes(described(FLOAT32, 4).data), bytes(described(DTYPES.index(np.dtype(np.int32)), 4).data)
    )
    with pytest.raises(WireError, match=r"segment.reward: int32 where float32 is meant"):
        decode(Parcel, forged)


@pytest.mark.parametrize(
    "array",
    [
        np.array([object()]),
        np.array(["text"]),
        np.zeros(2, ">f4"),
        np.zeros(2, np.float16),
        np.zeros(2, np.complex64),
        np.zeros(2, [("a", "<f4")]),
        np.zeros(2, "M8[s]"),
        np.zeros((1,) * 9),
    ],
    ids=lambda array: str(array.dtype),
)
def test_an_array_that_is_not_sent_is_refused_by_its_sender(array: np.ndarray) -> None:
    with pytest.raises(WireError, match=r"Any_\.array: "):
        encode(Any_(array))


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (replace(HELLO, pid="1"), "Hello.pid: str where int is meant"),
        (replace(HELLO, pid=True), "Hello.pid: bool where int is meant"),
        (replace(HELLO, pid=2**64), "Hello: "),
        (replace(HELLO, versions={1: "a"}), "Hello.versions: dict where a mapping with texts"),
        (replace(HELLO, versions=("a",)), "Hello.versions: tuple where a mapping"),
        (replace(JOIN, lanes=[1]), "Join.lanes: list where a tuple is meant"),
        (replace(JOIN, agreed={"x": {"y": object()}}), "Join.agreed.x.y: object where"),
        (replace(JOIN, agreed={"x": "y" * MAX_STRUCTURE}), "bytes besides arrays, at most"),
        (replace(PARCEL, parts=(HELLO,)), r"Parcel.parts[0]: Hello where Part is meant"),
        (replace(PARCEL, episodes=(("a", 1, 1.0),)), "Parcel.episodes[0]: tuple where tuple is meant"),
    ],
)
def test_a_message_of_wrong_types_is_refused_by_its_sender(sent: object, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        encode(sent)
    assert reason in str(caught.value)


def test_an_int_is_welcome_as_a_float_and_numpys_float_too() -> None:
    sent = replace(PARCEL, parts=(), episodes=(("a", 0, 3, 1), ("b", 1, np.float64(0.1), 2)))
    received = decode(Parcel, encode(sent)).episodes
    assert received == (("a", 0, 3.0, 1), ("b", 1, 0.1, 2))
    assert [type(episode[2]) for episode in received] == [float, float]


@pytest.mark.fault("F16")
@pytest.mark.parametrize(
    "nested", [b"\x91", b"\x81\xa1a", b"\xdc\x00\x01"], ids=["lists", "maps", "long lists"]
)
def test_deep_nesting_is_refused(nested: bytes) -> None:
    with pytest.raises(WireError, match="nested deeper than 16"):
        decode(Join, message(b"\x92\xa4Join\x96\xa1a\x81\xa1x" + nested * 100_000 + b"\xc0"))


@pytest.mark.fault("F16")
def test_many_small_values_are_refused() -> None:
    values = b"\xdd" + struct.pack(">I", 900_000) + b"\x80" * 900_000
    with pytest.raises(WireError, match=f"900000 items, at most {MAX_VALUES} are sent"):
        decode(Join, message(b"\x92\xa4Join\x96\xa1a\x81\xa1x" + values))


@pytest.mark.fault("F16")
def test_no_message_takes_more_memory_than_its_bytes_justify() -> None:
    bombs: list[tuple[type, bytes]] = [
        (Join, message(b"\x92\xa4Join\x96\xa1a\x81\xa1x" + b"\xdd\x00\x0f\x00\x00" * 1000)),
        (Join, message(b"\x92\xa4Join\x96\xa1a\x81\xa1x\xdd" + struct.pack(">I", 20_000) + b"\x80" * 20_000)),
        (Hello, message(b"\xdd\xff\xff\xff\xff")),
        (Any_, message(["Any_", [described(FLOAT32, 2**31)]], b"\0" * 100)),
        (Any_, message(["Any_", [described(FLOAT32, HUGE, 0)]])),
    ]
    for kind, data in bombs:
        tracemalloc.start()
        with pytest.raises(WireError):
            decode(kind, data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100 * len(data) + 200_000


def test_a_type_that_no_message_has_yet_needs_a_codec() -> None:
    with pytest.raises(TypeError, match="no codec for"):
        codec_of(set[int])


def test_a_beat_is_small() -> None:
    """It is sent every two seconds by every actor."""
    assert len(encode(Beat(actor="0" * 16, version=10**6, steps=10**9, waiting=64, dropped=10**6))) < 64


@pytest.mark.fault("F32")
@pytest.mark.parametrize("number", [4097, 75_000])
def test_ever_so_many_small_parts_are_refused_at_once(number: int) -> None:
    """A megabyte of them, 250,000, took four seconds."""
    empty = [["", 0, None]] * number
    for parts, episodes in ((empty, []), ([], [["", 0, 0.0, 1]] * number)):
        body = message(["Parcel", ["a", 0, 1, 0, 1, 1, parts, episodes, 0]])
        begun = time.process_time()
        with pytest.raises(WireError, match=f"{number} items, at most 4096 are sent"):
            decode(Parcel, body)
        assert time.process_time() - begun < 0.5
    with pytest.raises(WireError, match="4097 items, at most 4096"):
        encode(replace(PARCEL, parts=(Part("", 0, None),) * 4097))


@pytest.mark.fault("F32")
def test_of_a_large_message_the_sender_is_known_before_it_is_read() -> None:
    parts = tuple(Part("walker", agent, None) for agent in range(4000))
    assert sender(encode(PARCEL)) == "", "it is small"
    assert sender(encode(replace(PARCEL, parts=parts))) == PARCEL.actor
    assert sender(encode(replace(JOIN, agreed={"x": "y" * 20_000}))) == JOIN.actor
    for wrong, said in (
        (encode(Bye(actor="a", reason="x" * 20_000)), "only Join and Parcel have more"),
        (message(["Parcel", [7, "x" * 20_000]]), "int where str is meant"),
        (message(["Parcel", "x" * 20_000]), "no list"),
        (message("x" * 20_000), "no list"),
        (message(["x" * 20_000]), ""),
    ):
        with pytest.raises(WireError, match=said):
            sender(wrong)
