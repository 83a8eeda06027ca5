"""Reads the structure of a message one piece at a time, so that nothing is made that is not asked for."""

from __future__ import annotations

import msgpack

from algorithm.data import Array
from ds.arrays import EXTENSION, ArrayReader
from ds.errors import WireError

MAX_DEPTH = 16
"""Containers within containers; messages need about eight."""

Leaf = None | bool | int | float | str | Array

_CONTAINERS = {
    **dict.fromkeys((*range(0x80, 0x90), 0xDE, 0xDF), "map"),
    **dict.fromkeys((*range(0x90, 0xA0), 0xDC, 0xDD), "list"),
}
"""First bytes of msgpack's maps and arrays."""

_NONE = 0xC0
_SCALARS = (bool, int, float, str)


class Reader:
    """The pieces of a structure, in their order.

    A whole structure given to msgpack would be built before anybody looks at it, and a list of a billion
    elements announced in five bytes takes its memory at once. Here a container is its length, which is
    compared with the bytes that are left, and its elements are asked for by who knows what they must be.
    All methods raise WireError, naming ``path``.
    """

    def __init__(self, structure: bytes, arrays: ArrayReader) -> None:
        self._structure = structure
        self._arrays = arrays
        self._depth = 0
        self._counted = 0
        self._unpacker = msgpack.Unpacker(max_buffer_size=max(1, len(structure)), strict_map_key=True)
        self._unpacker.feed(structure)

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._structure) - int(self._unpacker.tell())

    def at_container(self) -> str:
        """``list``, ``map``, or nothing where the next piece is a single value or the end."""
        return _CONTAINERS.get(self._first(), "")

    def enter_list(self, path: str) -> int:
        """Number of elements that follow; :meth:`leave` behind the last."""
        return self._enter("list", path)

    def enter_map(self, path: str) -> int:
        """Number of keys that follow, each before its value; :meth:`leave` behind the last."""
        return self._enter("map", path)

    def leave(self) -> None:
        """The container entered last has ended."""
        self._depth -= 1

    def count(self, limit: int, path: str) -> None:
        """One more value whose type the message leaves open. Raises WireError beyond ``limit``."""
        self._counted += 1
        if self._counted > limit:
            raise WireError(f"{path}: more than {limit} values")

    def skip_none(self) -> bool:
        """Whether the next piece was None; any other one stays."""
        if self._first() != _NONE:
            return False
        self._unpacker.skip()
        return True

    def leaf(self, path: str) -> Leaf:
        """A single value or array."""
        if kind := self.at_container():
            raise WireError(f"{path}: a {kind} where there is none in this message")
        try:
            value = self._unpacker.unpack()
        except (ValueError, msgpack.UnpackException) as error:
            raise WireError(f"{path}: {_named(error)}") from None
        if isinstance(value, msgpack.ExtType):
            return self._array(value, path)
        if value is None or isinstance(value, _SCALARS):
            return value
        raise WireError(f"{path}: {type(value).__name__} is not sent")

    def finish(self) -> None:
        """Raises WireError if something is left over."""
        if self.left:
            raise WireError(f"{self.left} bytes too many behind the last field")
        self._arrays.finish()

    def _first(self) -> int:
        """First byte of the next piece, −1 at the end."""
        at = self._unpacker.tell()
        return self._structure[at] if at < len(self._structure) else -1

    def _array(self, value: msgpack.ExtType, path: str) -> Array:
        if value.code != EXTENSION:
            raise WireError(f"{path}: extension {value.code} is not known")
        return self._arrays.read(value.data, path)

    def _enter(self, kind: str, path: str) -> int:
        if self.at_container() != kind:
            raise WireError(f"{path}: no {kind} where there is one in this message")
        unpacker = self._unpacker
        try:
            number = int(unpacker.read_map_header() if kind == "map" else unpacker.read_array_header())
        except (ValueError, msgpack.UnpackException) as error:
            raise WireError(f"{path}: {_named(error)}") from None
        if number * (1 + (kind == "map")) > self.left:
            raise WireError(f"{path}: a {kind} of {number} in {self.left} bytes")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise WireError(f"{path}: nested deeper than {MAX_DEPTH}")
        return number


def _named(error: Exception) -> str:
    if isinstance(error, msgpack.OutOfData):
        return "the message ends here"
    return " ".join(str(error).split()) or type(error).__name__
