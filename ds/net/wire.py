"""Messages as bytes and back: msgpack of [type, fields in their order]; ``ds.net.protocol`` defines them.

An array is a msgpack extension: a byte for the dtype, a byte for the number of dimensions, four bytes for
each dimension, then its numbers, little endian.

msgspec decodes strictly by a message's annotations: no pickle, no conversion between types, limited lengths.
The length that a container announces allocates nothing.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
from msgspec.msgpack import Decoder, Encoder, Ext

from algorithm.core.data import Array
from ds.net.protocol import WireError

EXTENSION = 1
"""Code of the msgpack extension that is an array."""

DTYPES = tuple(
    np.dtype(name) for name in ("bool", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f4", "<f8")
)
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


def encode(message: msgspec.Struct) -> bytes:
    """Return ``message`` as bytes. Raises WireError for what cannot be sent."""
    try:
        return Encoder(enc_hook=_described).encode(message)
    except (OverflowError, struct.error, WireError) as error:  # an int of more than 64 bits, a length of 32
        raise WireError(f"{type(message).__name__}: {error}") from None


def decode(kind: Any, data: bytes) -> Any:  # noqa: ANN401 - a type or a union, and an instance of it
    """Return the message in ``data``, of type ``kind``; its arrays have memory of their own.

    Raises WireError with one line that names the place, and nothing else whatever the bytes are.
    """
    try:
        return Decoder(kind, ext_hook=_array, dec_hook=_checked).decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(" ".join(str(error).split())[:300] or type(error).__name__) from None


def _described(value: object) -> object:
    if isinstance(value, float):  # numpy's
        return float(value)
    if not isinstance(value, np.ndarray):
        raise WireError(f"{type(value).__name__} is not sent")
    if value.dtype not in _CODES:
        raise WireError(f"arrays of {value.dtype} are not sent")
    head = struct.pack(f"<BB{value.ndim}I", _CODES[value.dtype], value.ndim, *value.shape)
    return Ext(EXTENSION, head + value.tobytes())


def _array(code: int, data: memoryview) -> Array:
    """Return an array, aligned, which it is not among the bytes of a message."""
    if code != EXTENSION:
        raise WireError(f"extension {code} is not known")
    try:
        dtype, dimensions = DTYPES[data[0]], data[1]
        shape = struct.unpack_from(f"<{dimensions}I", data, 2)
        array: Array = np.frombuffer(data, dtype, offset=2 + 4 * dimensions).reshape(shape).copy()
    except (IndexError, ValueError, struct.error) as error:
        raise WireError(f"an array cannot be read: {error}") from None
    if dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
        raise WireError("a bool is neither 0 nor 1")
    return array


def _checked(annotation: object, value: object) -> object:
    """Return an array as it is: ``ds.checking`` compares dtypes; msgspec adds the place to a ValueError."""
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{type(value).__name__} instead of an array")
    return value
