"""How each type in ``ds.protocol`` is written and read, found from its annotations."""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from algorithm.data import Array
from ds.arrays import describe
from ds.errors import WireError
from ds.reading import Reader

MAX_VALUES = 65_536
"""Of a free JSON value, all its elements counted."""

MAX_ITEMS = 4096
"""Of any other list or mapping. A part of a parcel takes 16 µs at least, however few its bytes are."""


class Codec(ABC):
    """One type. ``path`` is the field's name for messages."""

    @abstractmethod
    def write(self, value: Any, arrays: list[Array], path: str) -> object:  # noqa: ANN401 - of the type
        """What msgpack gets instead of ``value``; arrays in it are appended. Raises WireError."""

    @abstractmethod
    def read(self, reader: Reader, path: str) -> Any:  # noqa: ANN401 - of the type
        """The value. Raises WireError."""


@dataclass(frozen=True)
class Plain(Codec):
    """A number, a truth value or a text; an int is welcome as a float, nothing else as anything else."""

    kind: type

    def write(self, value: Any, arrays: list[Array], path: str) -> object:  # noqa: ANN401
        """The value; a subclass, such as numpy's float64, becomes the type itself."""
        if self.kind is float and type(value) is int:
            return float(value)
        self._check(value, path)
        return self.kind(value)

    def read(self, reader: Reader, path: str) -> Any:  # noqa: ANN401
        """The value."""
        value = reader.leaf(path)
        self._check(value, path)
        return value

    def _check(self, value: object, path: str) -> None:
        if not isinstance(value, self.kind) or (isinstance(value, bool) and self.kind is not bool):
            raise WireError(f"{path}: {type(value).__name__} where {self.kind.__name__} is meant")


@dataclass(frozen=True)
class Choice(Codec):
    """One of a few texts."""

    texts: tuple[str, ...]

    def write(self, value: Any, arrays: list[Array], path: str) -> object:  # noqa: ANN401
        """The text."""
        return self._checked(value, path)

    def read(self, reader: Reader, path: str) -> Any:  # noqa: ANN401
        """The text."""
        return self._checked(reader.leaf(path), path)

    def _checked(self, value: object, path: str) -> object:
        if not isinstance(value, str) or value not in self.texts:
            raise WireError(f"{path}: none of {', '.join(self.texts)}")
        return value


@dataclass(frozen=True)
class Numbers(Codec):
    """A numpy array; ``dtype`` None: any that is sent."""

    dtype: np.dtype[np.generic] | None

    def write(self, value: Any, arrays: list[Array], path: str) -> object:  # noqa: ANN401
        """Its description; its numbers go behind the structure."""
        self._check(value, path)
        description = describe(value, path)
        arrays.append(value)
        return description

    def read(self, reader: Reader, path: str) -> Any:  # noqa: ANN401
        """A read-only view."""
        value = reader.leaf(path)
        self._check(value, path)
        return value

    def _check(self, value: object, path: str) -> None:
        if not isinstance(value, np.ndarray):
            raise WireError(f"{path}: {type(value).__name__} where an array is meant")
        if self.dtype is not None and value.dtype != self.dtype:
            raise WireError(f"{path}: {value.dtype} where {self.dtype} is meant")


@dataclass(frozen=True)
class Maybe(Codec):
    """A value or None."""

    codec: Codec

    def write(self, value: Any, arrays: list[Array], path: str) -> object:  # noqa: ANN401
        """The value or None."""
        return None if value is None else self.codec.write(value, arrays, path)

    def read(self, reader: Reader, path: str) -> Any:  # noqa: ANN401
        """The value or None."""
        return None if reader.skip_none() else self.codec.read(reader, path)


@dataclass(frozen=True)
class Row(Codec):
    """A tuple of values of one type."""

    codec: Codec
    most: int = MAX_ITEMS

    def write(self, value: Any, arrays: list[Array], path: str) -> object:  # noqa: ANN401
        """A list."""
        if not isinstance(value, tuple):
            raise WireError(f"{path}: {type(value).__name__} where a tuple is meant")
        _check_number(len(value), self.most, path)
        return [self.codec.write(one, arrays, f"{path}[{i}]") for i, one in enumerate(value)]

    def read(self, reader: Reader, path: str) -> Any:  # noqa: ANN401
        """A tuple."""
        number = reader.enter_list(path)
        _check_number(number, self.most, path)
        values = tuple([self.codec.read(reader, f"{path}[{i}]") for i in range(number)])
        reader.leave()
        return values


@dataclass(frozen=True)
class Fields(Codec):
    """A fixed number of values, each of a type and with a name of its own.

    make: from the values in their order to what they are together.
    """

    make: Any
    names: tuple[str, ...]
    codecs: tuple[Codec, ...]

    def write(self, value: Any, arrays: list[Array], path: str) -> object:  # noqa: ANN401
        """A list."""
        values = self._values(value, path)
        return [
            codec.write(one, arrays, f"{path}.{name}")
            for name, codec, one in zip(self.names, self.codecs, values, strict=True)
        ]

    def read(self, reader: Reader, path: str) -> Any:  # noqa: ANN401
        """The values, made into one."""
        number = reader.enter_list(path)
        if number != len(self.names):
            raise WireError(f"{path}: {number} fields where {len(self.names)} are meant")
        values = [
            codec.read(reader, f"{path}.{name}") for name, codec in zip(self.names, self.codecs, strict=True)
        ]
        reader.leave()
        if self.make is tuple:
            return tuple(values)
        return self.make(**dict(zip(self.names, values, strict=True)))

    def _values(self, value: Any, path: str) -> tuple[Any, ...]:  # noqa: ANN401
        if not isinstance(value, self.make) or (self.make is tuple and len(value) != len(self.names)):
            raise WireError(f"{path}: {type(value).__name__} where {self.make.__name__} is meant")
        return value if self.make is tuple else tuple(getattr(value, name) for name in self.names)


@dataclass(frozen=True)
class Table(Codec):
    """A mapping from texts to values of one type."""

    codec: Codec
    most: int = MAX_ITEMS

    def write(self, value: Any, arrays: list[Array], path: str) -> object:  # noqa: ANN401
        """A dict."""
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise WireError(f"{path}: {type(value).__name__} where a mapping with texts as keys is meant")
        _check_number(len(value), self.most, path)
        return {str(key): self.codec.write(one, arrays, f"{path}.{key}") for key, one in value.items()}

    def read(self, reader: Reader, path: str) -> Any:  # noqa: ANN401
        """A dict."""
        number = reader.enter_map(path)
        _check_number(number, self.most, path)
        values: dict[str, Any] = {}
        for _ in range(number):
            key = reader.leaf(path)
            if not isinstance(key, str) or key in values:
                raise WireError(f"{path}: a key is no text, or there twice")
            values[key] = self.codec.read(reader, f"{path}.{key[:64]}")
        reader.leave()
        return values


@dataclass(frozen=True)
class Json(Codec):
    """Any JSON value; a tuple arrives as a list."""

    def write(self, value: Any, arrays: list[Array], path: str) -> object:  # noqa: ANN401
        """The value, copied."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, list | tuple):
            return [self.write(one, arrays, f"{path}[{i}]") for i, one in enumerate(value)]
        return Table(self, MAX_VALUES).write(value, arrays, path)

    def read(self, reader: Reader, path: str) -> Any:  # noqa: ANN401
        """The value."""
        reader.count(MAX_VALUES, path)
        kind = reader.at_container()
        if kind == "map":
            return Table(self, MAX_VALUES).read(reader, path)
        if kind == "list":
            return list(Row(self, MAX_VALUES).read(reader, path))
        value = reader.leaf(path)
        if isinstance(value, np.ndarray):
            raise WireError(f"{path}: an array where a JSON value is meant")
        return value


def _check_number(number: int, most: int, path: str) -> None:
    if number > most:
        raise WireError(f"{path}: {number} items, at most {most} are sent")


def codec_of(annotation: Any) -> Codec:  # noqa: ANN401 - any annotation
    """The codec of a type. Raises TypeError for one that messages do not use yet."""
    return _codec_of(annotation)


@cache
def _codec_of(annotation: Any) -> Codec:  # noqa: ANN401
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return Json()
    if annotation in (bool, int, float, str):
        return Plain(annotation)
    if is_dataclass(annotation) and isinstance(annotation, type):
        hints = get_type_hints(annotation)
        names = tuple(field.name for field in fields(annotation))
        return Fields(annotation, names, tuple(codec_of(hints[name]) for name in names))
    if origin is Literal:
        return Choice(arguments)
    if origin is np.ndarray:
        (scalar,) = get_args(arguments[1])
        return Numbers(None if scalar is np.generic else np.dtype(scalar))
    return _codec_of_container(annotation, origin, arguments)


def _codec_of_container(annotation: object, origin: object, arguments: tuple[Any, ...]) -> Codec:
    if origin in (Union, types.UnionType) and len(arguments) == 2 and arguments[1] is type(None):
        return Maybe(codec_of(arguments[0]))
    if origin is tuple and arguments[-1] is ...:
        return Row(codec_of(arguments[0]))
    if origin is tuple:
        names = tuple(str(i) for i in range(len(arguments)))
        return Fields(tuple, names, tuple(codec_of(one) for one in arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping) and arguments[0] is str:
        return Table(codec_of(arguments[1]))
    raise TypeError(f"no codec for {annotation}")
