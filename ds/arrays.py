"""Arrays on the wire: what describes one, and where its numbers lie.

The description is a msgpack extension: a byte for the dtype, a byte for the number of dimensions, then four
bytes for each. The numbers themselves follow behind the message's structure, each array at the next multiple
of eight bytes, in the order of the descriptions. So a description cannot point anywhere, no two arrays share
memory, and reading makes views instead of copies.
"""

from __future__ import annotations

import struct
from math import prod

import msgpack
import numpy as np

from algorithm.data import Array
from ds.errors import WireError

EXTENSION = 1
"""Code of the msgpack extension."""

ALIGNMENT = 8
MAX_DIMENSIONS = 8
MAX_ELEMENTS = 2**31
"""Of one array, and of its non-zero dimensions where it is empty, so that no shape is beyond numpy."""

DTYPES = tuple(
    np.dtype(name) for name in ("bool", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f4", "<f8")
)
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


def aligned(offset: int) -> int:
    """The next multiple of :data:`ALIGNMENT` from ``offset`` on."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def describe(array: Array, path: str) -> msgpack.ExtType:
    """Dtype and shape of ``array``. Raises WireError where they cannot be sent, naming ``path``."""
    code = _CODES.get(array.dtype)
    if code is None:
        raise WireError(f"{path}: arrays of {array.dtype} are not sent")
    _check_shape(array.shape, path)
    return msgpack.ExtType(EXTENSION, struct.pack(f"<BB{array.ndim}I", code, array.ndim, *array.shape))


def raw(array: Array) -> memoryview:
    """The numbers of ``array`` in C order as bytes; a copy only where they do not lie so."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class ArrayReader:
    """Makes views of the arrays that lie behind a message's structure, in their order.

    data:  the whole message; the views keep it alive.
    start: where the structure ends.
    """

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._end = start

    def read(self, description: bytes, path: str) -> Array:
        """The next array, read-only. Raises WireError before any memory is taken."""
        dtype, shape = _described(description, path)
        start = aligned(self._end)
        size = prod(shape) * dtype.itemsize
        if start + size > len(self._data) and size:
            left = max(0, len(self._data) - start)
            raise WireError(f"{path}: {dtype} of shape {shape} needs {size} bytes, {left} are left")
        if not size:
            return _empty(shape, dtype)
        self._end = start + size
        view: Array = np.ndarray(shape, dtype, self._data, start)
        if dtype == np.bool_ and view.view(np.uint8).max() > 1:
            raise WireError(f"{path}: a bool is neither 0 nor 1")
        return view

    def finish(self) -> None:
        """Raises WireError if bytes are left over."""
        if self._end != len(self._data):
            raise WireError(f"{len(self._data) - self._end} bytes too many behind the last field")


def _described(description: bytes, path: str) -> tuple[np.dtype[np.generic], tuple[int, ...]]:
    if len(description) < 2 or len(description) != 2 + 4 * description[1]:
        raise WireError(f"{path}: the description of an array has {len(description)} bytes")
    code, dimensions = description[:2]
    if code >= len(DTYPES):
        raise WireError(f"{path}: {code} is no dtype")
    shape = struct.unpack(f"<{dimensions}I", description[2:])
    _check_shape(shape, path)
    return DTYPES[code], shape


def _check_shape(shape: tuple[int, ...], path: str) -> None:
    if len(shape) > MAX_DIMENSIONS:
        raise WireError(f"{path}: {len(shape)} dimensions, at most {MAX_DIMENSIONS} are sent")
    if prod(max(length, 1) for length in shape) > MAX_ELEMENTS:
        raise WireError(f"{path}: an array of shape {shape} is larger than is sent")


def _empty(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    array: Array = np.empty(shape, dtype)
    array.flags.writeable = False
    return array
