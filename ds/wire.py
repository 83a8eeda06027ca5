"""Messages as bytes and back. What a message means is in ``ds.protocol``.

```text
byte 0       schema: another one is refused before anything else is read
bytes 1-3    zero
bytes 4-7    length of the structure, little endian
bytes 8-     structure: msgpack of [name of the message, [its fields in their order]]
             the numbers of its arrays, see ``ds.arrays``
```

Nothing in it names code, and no more memory is taken than the bytes themselves justify.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import Any, TypeVar, overload

import msgpack

from algorithm.data import Array
from ds.arrays import ArrayReader, aligned, raw
from ds.codecs import codec_of
from ds.errors import WireError
from ds.reading import Reader

SCHEMA = 1
"""Both sides must write the same one; it changes with every change of a message's fields."""

MAX_STRUCTURE = 2**20
"""Bytes of a message without its arrays: Python objects take up to a hundred times as much as their bytes.

An agent's part of a parcel takes about 300.
"""

LARGE = 2**14
"""Bytes of a structure that takes a while to be read: most messages have less."""

_HEADER = struct.Struct("<B3xI")
_WITH_MANY = ("Join", "Parcel")

M = TypeVar("M")
N = TypeVar("N")


def encode(message: Any) -> bytes:  # noqa: ANN401 - any message of ds.protocol
    """``message`` as bytes. Raises WireError where a field is not of its type or too large."""
    name = type(message).__name__
    arrays: list[Array] = []
    fields = codec_of(type(message)).write(message, arrays, name)
    try:
        structure = msgpack.packb([name, fields])
    except (ValueError, OverflowError) as error:  # an int of more than 64 bits
        raise WireError(f"{name}: {error}") from None
    if len(structure) > MAX_STRUCTURE:
        raise WireError(f"{name}: {len(structure)} bytes besides arrays, at most {MAX_STRUCTURE} are sent")
    end = _HEADER.size + len(structure)
    return b"".join(chain((_HEADER.pack(SCHEMA, len(structure)), structure), _padded(arrays, end)))


@overload
def decode(kinds: type[M], data: bytes) -> M: ...
@overload
def decode(kinds: tuple[type[M], type[N]], data: bytes) -> M | N: ...
def decode(kinds: Any, data: bytes) -> Any:
    """The message in ``data``, which must be of one of ``kinds``. Its arrays are read-only views of ``data``.

    Raises WireError with one line that names the field, and nothing else whatever the bytes are.
    """
    expected = {kind.__name__: kind for kind in (kinds if isinstance(kinds, tuple) else (kinds,))}
    end = _HEADER.size + _structure_length(data)
    reader = Reader(data[_HEADER.size : end], ArrayReader(data, end))
    if reader.enter_list("message") != 2:
        raise WireError("message: a name and its fields are meant")
    name = reader.leaf("message")
    if not isinstance(name, str) or name not in expected:
        raise WireError(f"message: none of {', '.join(expected)}")
    message = codec_of(expected[name]).read(reader, name)
    reader.finish()
    return message


def sender(data: bytes) -> str:
    """The actor whose message this is if its structure is large, else nothing; only its first bytes are read.

    Raises WireError for what is no message, or one of a kind that is never so large.
    """
    length = _structure_length(data)
    if length <= LARGE:
        return ""
    reader = Reader(data[_HEADER.size : _HEADER.size + LARGE], ArrayReader(b"", 0))
    reader.enter_list("message")
    name = reader.leaf("message")
    if name not in _WITH_MANY:
        raise WireError(
            f"a structure of {length} bytes, only {' and '.join(_WITH_MANY)} have more than {LARGE}"
        )
    reader.enter_list(f"{name}")
    actor = reader.leaf(f"{name}.actor")
    if not isinstance(actor, str):
        raise WireError(f"{name}.actor: {type(actor).__name__} where str is meant")
    return actor


def _structure_length(data: bytes) -> int:
    if len(data) < _HEADER.size:
        raise WireError(f"{len(data)} bytes are no message")
    schema, length = _HEADER.unpack_from(data)
    if schema != SCHEMA:
        raise WireError(f"schema {schema} and not {SCHEMA}: both sides need the same version of the program")
    if length > MAX_STRUCTURE or _HEADER.size + length > len(data):
        raise WireError(f"a structure of {length} bytes in a message of {len(data)}")
    return int(length)


def _padded(arrays: list[Array], end: int) -> list[Any]:
    """The bytes of ``arrays``, each behind as many zeros as align it; the first begins after ``end``."""
    pieces: list[Any] = []
    for array in arrays:
        if array.size:
            start = aligned(end)
            pieces += [bytes(start - end), raw(array)]
            end = start + array.nbytes
    return pieces
