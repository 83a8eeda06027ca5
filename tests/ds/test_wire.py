import random
import struct
import time
import tracemalloc

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext
from msgspec.structs import replace

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from ds.net.protocol import (
    Beat,
    Bye,
    Hello,
    Join,
    Message,
    Receipt,
    Refused,
    StepMessage,
    WeightRequest,
    WireError,
)
from ds.net.wire import DTYPES, EXTENSION, decode, encode
from tests.ds.samples import HELLO, JOIN, MESSAGES, WELCOME, arrays, messages, same, step_message, steps

BEAT = Beat(actor="a", version=1, steps=2, waiting=0, dropped=0)
SPEC = AgentSpec(
    ObsSpec(("image", "speed"), ((2, 3, 3), (3,)), ("uint8", "float32")), ActionSpec((3, 2), continuous=2)
)
STEPS = step_message(walker=steps(SPEC, 4, (2, 3)), runner=steps(SPEC, 2, (0,)))


class OneArray(Message, frozen=True):
    """A message that holds one array of any type."""

    array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]


pack = msgspec.msgpack.encode


def described(code: int, *shape: int) -> Ext:
    return Ext(EXTENSION, struct.pack(f"<B{len(shape)}I", code, *shape))


def body(packed: bytes, numbers: bytes = b"") -> bytes:
    """A message of this structure, and what stands behind it."""
    start = len(packed).to_bytes(4, "little") + packed
    return start + bytes(-len(start) % 16) + numbers if numbers else start


@given(messages)
def test_what_is_written_is_read(sent: object) -> None:
    assert same(decode(type(sent), encode(sent)), sent)


@pytest.mark.fault("F31")
@pytest.mark.parametrize(
    ("sent", "changes"),
    [
        (HELLO, {"actor": ""}),
        (HELLO, {"actor": "a" * 65}),
        (HELLO, {"pid": -1}),
        (JOIN, {"version": -1}),
        (STEPS, {"number": 0}),
        (STEPS, {"version": 2**53 + 1}),
        (STEPS, {"dropped": -1}),
        (BEAT, {"steps": -1}),
        (BEAT, {"waiting": 2**31}),
        (BEAT, {"faults": (0, -1)}),
    ],
)
def test_numbers_beyond_their_limits_are_not_read(sent: Message, changes: dict[str, object]) -> None:
    with pytest.raises(WireError, match="Expected"):
        decode(type(sent), encode(replace(sent, **changes)))


@given(arrays, st.sampled_from(("as it is", "transposed", "reversed")))
def test_every_array_is_read_as_it_was(array: np.ndarray, order: str) -> None:
    if order != "as it is" and array.ndim:
        array = array.T if order == "transposed" else array[::-1]
    received = decode(OneArray, encode(OneArray(array))).array
    assert same(received, np.ascontiguousarray(array).reshape(array.shape))
    assert received.flags.aligned and received.base is not None, "a view of what has come"


@pytest.mark.fault("F16")
def test_cut_off_anywhere_or_with_flipped_bits_it_is_read_as_one_kind_at_most() -> None:
    rng = random.Random(0)
    for sent in (STEPS, HELLO, JOIN, WELCOME):
        data = encode(sent)
        assert not any(kinds_of(data[:end]) for end in range(0, len(data), 3))
        assert kinds_of(data + b"\0") == [] and kinds_of(data) == [type(sent)]
        for _ in range(300):
            forged = bytearray(data)
            for _ in range(rng.randint(1, 3)):
                forged[rng.randrange(min(len(forged), 900))] ^= 1 << rng.randrange(8)
            assert len(kinds_of(bytes(forged))) <= 1


@pytest.mark.fault("F16")
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    assert kinds_of(data) == kinds_of(body(data)) == []
    for kind in MESSAGES:
        assert kinds_of(body(b"\x92" + pack(kind.__name__) + data)) == []


def kinds_of(data: bytes) -> list[type]:
    """The kinds of message that ``data`` can be read as; the others refuse it, each with one short line."""
    found = []
    for kind in MESSAGES:
        try:
            decode(kind, data)
            found.append(kind)
        except WireError as error:
            assert "\n" not in str(error) and len(str(error)) < 400
    return found


@pytest.mark.fault("F16")
@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        (Hello, b"rubbish", "Expected `array`, got `int`"),
        (Bye, b"\xdd\xff\xff\xff\xff", "truncated"),
        (Bye, b"\x93\xa3Bye" + b"\xdd\xff\xff\xff\xff" * 999, "Expected `str`, got `array`"),
        (Bye, b"\x93\xa3Bye\xdb\xff\xff\xff\xff", "truncated"),
        (Bye, b"\x93\xa3Bye\xc9\xff\xff\xff\xff\x01", "truncated"),
        (Join, b"\x97\xa4Join\xa1a\xdf\xff\xff\xff\xff", "Expected `str`, got `object` - at `$[2]`"),
        (Bye, pack(["Bye", "a"]), "Expected `array` of at least length 3, got 2"),
        (Bye, pack(["Bye", "a", "b", "c"]), "Expected `array` of at most length 2, got 3"),
        (Bye, pack({"actor": "a", "reason": "b"}), "Expected `array`, got `object`"),
        (Bye, pack(["Bye", "a", 1]), "Expected `str`, got `int` - at `$[2]`"),
        (Bye, pack(["Bye", "a", Ext(7, b"b")]), "Expected `str`, got `ext` - at `$[2]`"),
        (Bye, pack(["Bye", "a", described(0)]), "Expected `str`, got `ext` - at `$[2]`"),
        (OneArray, pack(["OneArray", Ext(7, b"b")]), "extension 7 is not known"),
        (OneArray, pack(["OneArray", "b"]), "str instead of an array - at `$[1]`"),
        (OneArray, pack(["OneArray", [1, 2]]), "list instead of an array - at `$[1]`"),
        (Bye, b"\x93\xa3Bye\xa1a\xa1\xff", "'utf-8' codec can't decode"),
        (Bye, b"\x93\xa3Bye\xa1a\xc1", "invalid opcode"),
        (Bye, pack([["Bye"], "a", "b"]), "Expected `str`, got `array` - at `$[0]`"),
        (Bye, pack(["Join", "a", "b"]), "Invalid value 'Join' - at `$[0]`"),
        (Bye, pack(["Bye", "a", "b"]) + b"\0", "trailing characters"),
        (WeightRequest, pack(["WeightRequest", "a", True]), "Expected `int`, got `bool` - at `$[2]`"),
        (Receipt, pack(["Receipt", "gone", 1, {}, ""]), "Invalid enum value 'gone' - at `$[1]`"),
        (
            Receipt,
            pack(["Receipt", "taken", 1, {"a": 1}, ""]),
            "Expected `bool`, got `int` - at `$[3][...]`",
        ),
        (
            Receipt,
            pack(["Receipt", "taken", 1, {str(i): True for i in range(257)}, ""]),
            "Expected `object` of length <= 256 - at `$[3]`",
        ),
        (
            Refused,
            pack(["Refused", "full", "a", ["b"] * 4097]),
            "Expected `array` of length <= 4096 - at `$[3]`",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_message_names_the_place(kind: type, data: bytes, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        decode(kind, body(data))
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.fault("F16")
@pytest.mark.parametrize("data", [b"", b"\1\0\0", bytes(4), bytes(9), b"\xff" * 9, encode(HELLO) + b"x"])
def test_a_length_that_is_not_that_of_the_bytes_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match=r"its length is wrong|belong to no array"):
        decode(Hello, data)


FLOAT32 = DTYPES.index(np.dtype(np.float32))
HUGE = 2**32 - 1


@pytest.mark.fault("F16")
@pytest.mark.parametrize(
    ("description", "numbers", "reason"),
    [
        (described(FLOAT32, 2**30), 8, "an array cannot be read"),
        (described(FLOAT32, *[HUGE] * 8), 8, "an array cannot be read"),
        (described(FLOAT32, *[1] * 200), 4, "an array cannot be read"),
        (described(FLOAT32, 1), 3, "an array cannot be read"),
        (described(FLOAT32, 1), 5, "belong to no array"),
        (described(len(DTYPES), 1), 8, "an array cannot be read"),
        (Ext(EXTENSION, b""), 0, "an array cannot be read"),
        (Ext(EXTENSION, b"\x09\x02\0\0"), 8, "belong to no array"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_forged_array_is_refused(description: Ext, numbers: int, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode(OneArray, body(pack(["OneArray", description]), bytes(numbers)))


@pytest.mark.fault("F16")
def test_a_bool_is_0_or_1() -> None:
    with pytest.raises(WireError, match="a bool is neither 0 nor 1"):
        decode(OneArray, body(pack(["OneArray", described(0, 3)]), b"\0\1\2"))


@pytest.mark.fault("F32")
@pytest.mark.parametrize("number", [4097, 250_000])
def test_ever_so_many_small_arrays_are_refused_at_once(number: int) -> None:
    """Megabytes of them: the event loop decodes nothing else meanwhile."""
    obs = {str(i): described(FLOAT32, 0) for i in range(number)}
    data = body(pack(["StepMessage", "a", 1, 0, 0, {}, {"x": {"obs": obs}}, {}, {}]), bytes(16))
    begun = time.process_time()
    with pytest.raises(WireError, match="more than 4096 arrays"):
        decode(StepMessage, data)
    assert time.process_time() - begun < 0.2


@pytest.mark.parametrize(
    "sent",
    [
        replace(HELLO, pid=2**64),
        replace(HELLO, host=object()),
        OneArray(np.array([object()])),
        OneArray(np.array(["text"])),
        OneArray(np.zeros(2, ">f4")),
        OneArray(np.zeros(2, np.float16)),
        OneArray(np.zeros(2, [("a", "<f4")])),
    ],
    ids=lambda sent: type(sent).__name__,
)
def test_what_cannot_be_sent_is_refused_by_its_sender(sent: Message) -> None:
    with pytest.raises(WireError):
        encode(sent)


@pytest.mark.fault("F16")
def test_no_message_takes_more_memory_than_its_bytes_justify() -> None:
    many = 2**19
    bombs: list[tuple[type, bytes]] = [
        (OneArray, b"\x92\xa8OneArray" + b"\xdd\x00\x0f\x00\x00" * 900),
        (OneArray, b"\x92\xa8OneArray\xdd" + struct.pack(">I", many) + b"\x80" * many),
        (OneArray, b"\x92\xa8OneArray" + b"\x91" * 100_000 + b"\xc0"),
        (Join, b"\x97\xa4Join\xa1a" + b"\x81\xa1a" * 100_000 + b"\xc0"),
        (OneArray, pack(["OneArray", described(FLOAT32, 2**31)])),
    ]
    for kind, data in bombs:
        tracemalloc.start()
        with pytest.raises(WireError):
            decode(kind, body(data))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100 * len(data) + 200_000
