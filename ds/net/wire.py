"""Messages as bytes and back; ``ds.net.protocol`` defines the messages.

```text
byte 0       schema: another one is refused before anything else is read
bytes 1-3    zero
bytes 4-7    length of the structure, little endian
bytes 8-     structure: msgpack of a message, [its type, its fields in their order]
             numbers of its arrays, each array at the next multiple of eight bytes
```

An array in the structure is a msgpack extension: a byte for the dtype, a byte for the number of dimensions,
four bytes for each dimension. The numbers follow in the order of these descriptions. So a description holds
no offset, two arrays never share memory, and arrays are read as views.

msgspec decodes strictly by a message's annotations: no pickle, no conversion between types, limited lengths.
The length that a container announces allocates nothing.
"""

from __future__ import annotations

import struct
from itertools import chain
from math import prod
from typing import Any

import msgspec
import numpy as np

from algorithm.core.data import Array
from ds.net.protocol import WireError

SCHEMA = 2
"""Version of this layout; both sides must write the same."""

MAX_STRUCTURE = 2**20
"""Maximum size in bytes of a message without its arrays.

Decoded, it takes up to a hundred times as much memory. A chunk of a message takes about 100 bytes.
"""

LARGE = 2**14
"""Size in bytes from which a structure takes a while to decode; most messages have less."""

EXTENSION = 1
"""Code of the msgpack extension that describes an array."""

ALIGNMENT = 8
MAX_DIMENSIONS = 8
MAX_ELEMENTS = 2**31
"""Maximum product of an array's non-zero dimensions, so that numpy can make every shape."""

DTYPES = tuple(
    np.dtype(name) for name in ("bool", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f4", "<f8")
)
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_HEADER = struct.Struct("<B3xI")


def encode(message: msgspec.Struct) -> bytes:
    """Return ``message`` as bytes. Raises WireError for what cannot be sent, or is too large."""
    name, arrays = type(message).__name__, list[Array]()

    def describe(value: object) -> object:
        if isinstance(value, float):  # numpy's
            return float(value)
        if not isinstance(value, np.ndarray):
            raise WireError(f"{name}: {type(value).__name__} is not sent")
        arrays.append(value)
        return msgspec.msgpack.Ext(EXTENSION, _description(value, name))

    try:
        structure = msgspec.msgpack.Encoder(enc_hook=describe).encode(message)
    except OverflowError as error:  # an int of more than 64 bits
        raise WireError(f"{name}: {error}") from None
    if len(structure) > MAX_STRUCTURE:
        raise WireError(f"{name}: {len(structure)} bytes besides arrays, at most {MAX_STRUCTURE} are sent")
    end = _HEADER.size + len(structure)
    return b"".join(chain((_HEADER.pack(SCHEMA, len(structure)), structure), _padded(arrays, end)))


def decode(kind: Any, data: bytes) -> Any:  # noqa: ANN401 - a type or a union, and an instance of it
    """Return the message in ``data``, of type ``kind``; its arrays are read-only views of ``data``.

    Raises WireError with one line that names the place, and nothing else whatever the bytes are.
    """
    structure = _structure(data)
    arrays = _ArrayReader(data, _HEADER.size + len(structure))
    try:
        message = msgspec.msgpack.Decoder(kind, ext_hook=arrays.read, dec_hook=_checked).decode(structure)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(" ".join(str(error).split())[:300] or type(error).__name__) from None
    arrays.finish()
    return message


def takes_long(data: bytes) -> bool:
    """Return whether ``data`` may take a while to decode. Raises WireError for malformed data."""
    return len(_structure(data)) > LARGE


def aligned(offset: int) -> int:
    """Return the next multiple of :data:`ALIGNMENT` from ``offset`` on."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _structure(data: bytes) -> memoryview:
    if len(data) < _HEADER.size:
        raise WireError(f"{len(data)} bytes are no message")
    schema, length = _HEADER.unpack_from(data)
    if schema != SCHEMA:
        raise WireError(f"schema {schema} and not {SCHEMA}: both sides need the same version of the program")
    if length > MAX_STRUCTURE or _HEADER.size + length > len(data):
        raise WireError(f"a structure of {length} bytes in a message of {len(data)}")
    return memoryview(data)[_HEADER.size : _HEADER.size + length]


def _description(array: Array, name: str) -> bytes:
    code = _CODES.get(array.dtype)
    if code is None:
        raise WireError(f"{name}: arrays of {array.dtype} are not sent")
    _check_shape(array.shape)
    return struct.pack(f"<BB{array.ndim}I", code, array.ndim, *array.shape)


def _padded(arrays: list[Array], end: int) -> list[Any]:
    """Return the bytes of ``arrays``, each aligned by zeros before it; the first begins after ``end``."""
    pieces: list[Any] = []
    for array in arrays:
        if array.size:
            start = aligned(end)
            pieces += [bytes(start - end), np.ascontiguousarray(array).reshape(-1).view(np.uint8).data]
            end = start + array.nbytes
    return pieces


class _ArrayReader:
    """Views of the arrays behind a message's structure, in their order.

    data:  the whole message; the views keep it alive.
    start: where the structure ends.
    """

    def __init__(self, data: bytes, start: int) -> None:
        self._data, self._end = data, start

    def read(self, code: int, description: memoryview) -> Array:
        """Return the next array. Raises WireError before any memory is taken."""
        if code != EXTENSION:
            raise WireError(f"extension {code} is not known")
        dtype, shape = _described(description)
        size = prod(shape) * dtype.itemsize
        if not size:
            empty: Array = np.empty(shape, dtype)
            empty.flags.writeable = False
            return empty
        start = aligned(self._end)
        if start + size > len(self._data):
            left = max(0, len(self._data) - start)
            raise WireError(f"{dtype} of shape {shape} needs {size} bytes, {left} are left")
        self._end = start + size
        view: Array = np.ndarray(shape, dtype, self._data, start)
        if dtype == np.bool_ and view.view(np.uint8).max() > 1:
            raise WireError("a bool is neither 0 nor 1")
        return view

    def finish(self) -> None:
        """Raise WireError if bytes are left over."""
        if self._end != len(self._data):
            raise WireError(f"{len(self._data) - self._end} bytes too many behind the last field")


def _described(description: memoryview) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    if len(description) < 2 or len(description) != 2 + 4 * description[1]:
        raise WireError(f"the description of an array has {len(description)} bytes")
    code, dimensions = description[:2]
    if code >= len(DTYPES):
        raise WireError(f"{code} is no dtype")
    shape = struct.unpack(f"<{dimensions}I", description[2:])
    _check_shape(shape)
    return DTYPES[code], shape


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) > MAX_DIMENSIONS:
        raise WireError(f"{len(shape)} dimensions, at most {MAX_DIMENSIONS} are sent")
    if prod(max(length, 1) for length in shape) > MAX_ELEMENTS:
        raise WireError(f"an array of shape {shape} is larger than is sent")


def _checked(annotation: object, value: object) -> object:
    """Return an array as it is: ``ds.checking`` compares dtypes; msgspec adds the place to a ValueError."""
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{type(value).__name__} where an array is meant")
    return value
