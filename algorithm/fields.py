"""What the owners of configuration keys share to declare them beside their code.

Each part of the program declares its keys as a `Block`; ``algorithm/config/schema.py`` composes the blocks.
Nothing here reads files, merges or prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError


def to_number(value: object) -> object:
    """Text that spells a number becomes that number, so that a quoted ``"3e-4"`` means what it says."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def to_whole(value: object) -> object:
    """A number without a fraction becomes an int: ``1e6`` is a million, ``2.5`` stays and is refused."""
    value = to_number(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _limit(value: int) -> int:
    if value == 0:
        raise PydanticCustomError("limit", "0 would allow nothing at all; no limit is written -1")
    if value < -1:
        raise PydanticCustomError("limit", "only -1 (no limit) is allowed below 1")
    return value


Int = Annotated[int, BeforeValidator(to_whole)]
"""A whole number; ``1e6`` counts as one, ``true`` does not.

Bounds inside a union or list go between ``int`` and the validator, so that the JSON schema shows them.
"""

Float = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(to_number)]
"""A finite number."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(to_number)]
"""A number above 0, also inside a union."""

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(to_number)]
"""A number from 0 on, also inside a union."""

Limit = Annotated[
    Int,
    AfterValidator(_limit),
    WithJsonSchema({"anyOf": [{"const": -1}, {"type": "integer", "minimum": 1}]}),
]
"""A number of things, or -1 for "no limit"."""


class Contradiction(NamedTuple):
    """Values that are each right and do not go together; ``keys`` are dotted below the block that says so."""

    keys: tuple[str, ...]
    why: str
    fix: str


class Block(BaseModel):
    """A mapping of the configuration: immutable, no unknown keys, no conversions beyond `Int` and `Float`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def contradictions(self) -> Iterator[Contradiction]:
        """Pairs of values of this block that exclude each other; overridden where there are any.

        Whoever reads a configuration asks, not the constructor: a wrong value elsewhere must not hide them.
        """
        return iter(())


def option(
    default: Any,  # noqa: ANN401 - a default has the type of its field
    description: str,
    *,
    new: bool = False,
    reserved: str | None = None,
    reserved_values: dict[str, str] | None = None,
    fixed: str | None = None,
    **bounds: Any,  # noqa: ANN401 - handed on to pydantic
) -> Any:  # noqa: ANN401 - stands where the field's own type is declared
    """Declare one key.

    new: the key is not in the original listings.
    reserved: the part of the project that will bring the feature; until then only the default loads.
    reserved_values: the same for single values, value → part.
    fixed: why a run cannot be resumed with another value; see ``algorithm/config/resume_rules.py``.
    bounds: ``ge``, ``gt``, ``le``, ``lt`` as pydantic knows them.
    """
    extra: dict[str, Any] = {}
    if new:
        extra["new"] = True
    if reserved is not None:
        extra["reserved"] = reserved
    if reserved_values is not None:
        extra["reserved_values"] = dict(reserved_values)
    if fixed is not None:
        extra["fixed"] = fixed
    return Field(default, description=description, json_schema_extra=extra, **bounds)


def required(description: str, *, fixed: str | None = None, **bounds: Any) -> Any:  # noqa: ANN401 - as above
    """Declare a key that only a task can know: it has no default, and nothing runs without it.

    In a block made without it the key is None, whatever its type; in a configuration to be run it never is.
    """
    field = option(None, description, fixed=fixed, **bounds)
    field.json_schema_extra["no_default"] = True
    return field
