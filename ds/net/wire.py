"""Messages as bytes and back; ``ds.net.protocol`` defines them.

Four bytes are the length of what follows: msgpack of [type, fields in their order], in which an array is an
extension with its dtype and shape. Behind it the arrays' numbers stand in the same order, little endian, each
from a multiple of 16 bytes on. So they are copied once where they are sent, and not where they are received.

msgspec decodes strictly by a message's annotations: no pickle, no conversion between types, limited lengths.
The length that a container announces allocates nothing.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from msgspec import msgpack

from algorithm.core.data import Array
from ds.net.protocol import WireError

EXTENSION = 1
"""Code of the msgpack extension that is an array: a byte for its dtype, four for each dimension."""

DTYPES = tuple(
    np.dtype(name) for name in ("bool", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f4", "<f8")
)
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
MAX_ARRAYS = 4096
"""Maximum number of arrays in a message: each costs more than its bytes."""

_HEAD = 4
_ALIGNED = 16


def encode(message: msgspec.Struct) -> bytes:
    """Return ``message`` as bytes. Raises WireError for what cannot be sent."""
    arrays: list[Array] = []

    def described(value: object) -> object:
        if isinstance(value, float):  # numpy's
            return float(value)
        if not isinstance(value, np.ndarray):
            raise WireError(f"{type(value).__name__} is not sent")
        if value.dtype not in _CODES:
            raise WireError(f"arrays of {value.dtype} are not sent")
        arrays.append(np.ascontiguousarray(value))
        return msgpack.Ext(EXTENSION, struct.pack(f"<B{value.ndim}I", _CODES[value.dtype], *value.shape))

    try:
        packed = msgpack.encode(message, enc_hook=described)
        head = struct.pack("<I", len(packed))
    except (OverflowError, struct.error, WireError) as error:  # an int of more than 64 bits, a length of 32
        raise WireError(f"{type(message).__name__}: {error}") from None
    parts: list[bytes | memoryview] = [head, packed]
    at = _HEAD + len(packed)
    for array in arrays:
        parts += [bytes(-at % _ALIGNED), array.reshape(-1).view(np.uint8).data]
        at += -at % _ALIGNED + array.nbytes
    return b"".join(parts)


def decode(kind: Any, data: bytes) -> Any:  # noqa: ANN401 - a type or a union, and an instance of it
    """Return the message in ``data``, of type ``kind``; its arrays are views of ``data``.

    Raises WireError with one line that names the place, and nothing else whatever the bytes are.
    """
    end = _HEAD + int.from_bytes(data[:_HEAD], "little")
    if not _HEAD < end <= len(data):
        raise WireError(f"its length is wrong: {end} of {len(data)} bytes")
    arrays, structure = _Arrays(data, end), memoryview(data)[_HEAD:end]
    try:
        message = msgpack.decode(structure, type=kind, ext_hook=arrays.next, dec_hook=_checked)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(" ".join(str(error).split())[:300] or type(error).__name__) from None
    if arrays.at != len(data):
        raise WireError(f"bytes that belong to no array, behind {arrays.at}")
    return message


class _Arrays:
    """The arrays behind a message's structure, in their order."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self.at, self._count = data, at, 0

    def next(self, code: int, head: memoryview) -> Array:
        """Return the next array, which has this description."""
        if code != EXTENSION:
            raise WireError(f"extension {code} is not known")
        self._count += 1
        if self._count > MAX_ARRAYS:
            raise WireError(f"more than {MAX_ARRAYS} arrays")
        self.at += -self.at % _ALIGNED
        try:
            dtype, shape = _described(bytes(head))
            array: Array = np.ndarray(shape, dtype, self._data, self.at)
        except (IndexError, OverflowError, TypeError, ValueError, struct.error) as error:
            raise WireError(f"an array cannot be read: {error}") from None
        if dtype.kind == "b" and np.count_nonzero(array.view(np.uint8) > 1):
            raise WireError("a bool is neither 0 nor 1")
        self.at += array.nbytes
        return array


@lru_cache(maxsize=1024)  # an actor's messages repeat a few
def _described(head: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return dtype and shape of an array."""
    return DTYPES[head[0]], struct.unpack_from(f"<{(len(head) - 1) // 4}I", head, 1)


def _checked(annotation: object, value: object) -> object:
    """Return an array as it is: ``ds.checking`` compares dtypes; msgspec adds the place to a ValueError."""
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{type(value).__name__} instead of an array")
    return value
