"""Declaration of configuration keys: types of values, blocks, and the facts that a key carries.

Each part of the program declares its keys as a `Block`; ``algorithm/config/schema.py`` composes the blocks.
Nothing here reads files, merges or prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from typing_extensions import override

from algorithm.core.errors import UsageError
from algorithm.core.plugins import EXTENSIONS, SAMPLERS, Group, find


def to_number(value: object) -> object:
    """Convert text that spells a number, such as a quoted ``"3e-4"``; return anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def to_whole(value: object) -> object:
    """Convert a number without a fraction to an int: ``1e6`` is a million, ``2.5`` stays and is refused."""
    value = to_number(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _limit(value: int) -> int:
    """Return a limit. Raises an error of pydantic for 0, and below -1."""
    if value == 0:
        raise PydanticCustomError("limit", "0 would allow nothing; write -1 for no limit")
    if value < -1:
        raise PydanticCustomError("limit", "only -1 (no limit) is allowed below 1")
    return value


Whole = Annotated[int, BeforeValidator(to_whole)]
"""A whole number; ``1e6`` counts as one, ``true`` does not.

Bounds inside a union or list go between ``int`` and the validator, so that the JSON schema shows them.
"""

AtLeastOne = Annotated[int, Field(ge=1), BeforeValidator(to_whole)]
"""A whole number from 1 on, also inside a union or a list."""

Natural = Annotated[int, Field(ge=0), BeforeValidator(to_whole)]
"""A whole number from 0 on, also inside a union or a list."""

Finite = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(to_number)]
"""A finite number."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(to_number)]
"""A number above 0, also inside a union."""

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(to_number)]
"""A number from 0 on, also inside a union."""

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(to_number)]
"""A number from 0 to 1, also inside a list."""

Limit = Annotated[
    Whole,
    AfterValidator(_limit),
    WithJsonSchema({"anyOf": [{"const": -1}, {"type": "integer", "minimum": 1}]}),
]
"""A number of things, or -1 for "no limit"."""


def _named(entry: object) -> object:
    """Turn a bare name into an entry without arguments."""
    if isinstance(entry, str):
        return {entry: None}
    if isinstance(entry, dict) and len(entry) != 1:
        raise PydanticCustomError("entry", "every name needs its own entry, in order")
    return entry


NamedEntry = Annotated[
    dict[str, dict[str, Any] | None],
    BeforeValidator(_named),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": {"type": ["object", "null"]},
                },
            ]
        }
    ),
]
"""A name -> its keyword arguments, or None; a bare name is valid too."""


def part_name(group: Group) -> AfterValidator:
    """Return a validator of names and `NamedEntry`s, which must be built in or ``module:NAME``."""

    def check(value: Any) -> Any:  # noqa: ANN401 - as the field declares
        """Return the value. Raises pydantic's error for any other name."""
        for name in [value] if isinstance(value, str) else value:
            try:
                find(group, name)
            except UsageError as error:
                context = {"why": f"{error.what}: {error.why}", "fix": error.fix}
                raise PydanticCustomError("plugin", "{why}", context) from error
        return value

    return AfterValidator(check)


def name_schema(group: Group) -> WithJsonSchema:
    """Return the JSON schema of a name: a built-in one, or ``module:NAME``."""
    plugin = {"type": "string", "title": "module:NAME", "minLength": 1}
    return WithJsonSchema({"anyOf": [{"type": "string", "enum": [*group.built_in]}, plugin]})


ExtensionEntry = Annotated[NamedEntry, part_name(EXTENSIONS)]
"""A function of a module that makes an extension, with its keyword arguments."""

SamplerEntry = Annotated[NamedEntry, part_name(SAMPLERS)]
"""A class of a module, a sampler, with its keyword arguments."""

AnyConfig: TypeAlias = Any
"""The whole `Config`, untyped: its class is composed of the fragments and imports them."""

Resume: TypeAlias = str | Callable[[AnyConfig, AnyConfig], str]
"""Effect of another value when a run is resumed.

``free`` or ``free: note``: the value is applied. ``fixed: reason``: it is refused, because what was learned
or stored would not fit. ``ignored``: it is not compared. A function of the old and the new configuration
returns one of these.
"""


class Contradiction(NamedTuple):
    """Values that exclude each other, or one that is wrong; ``keys`` are dotted below the block with them."""

    keys: tuple[str, ...]
    why: str
    fix: str


def contradicting(*rules: tuple[bool, tuple[str, ...], str, str]) -> Iterator[Contradiction]:
    """Yield the contradictions of the rules that apply. rules: (whether it applies, keys, why, fix) each."""
    return (Contradiction(keys, why, fix) for holds, keys, why, fix in rules if holds)


class Block(BaseModel):
    """A mapping of the configuration: immutable, no unknown keys; only `Whole` and `Finite` convert."""

    # Without the last, an infinity among values of any type (`env_args`) would be dumped as null.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, ser_json_inf_nan="constants")

    @override
    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the keys whose value differs from the default, for ``repr``: a configuration has hundreds."""
        fields = type(self).model_fields
        return ((name, value) for name, value in self if value != fields[name].default)

    def contradictions(self) -> Iterator[Contradiction]:
        """Yield the values of this block that exclude each other.

        The loader calls it, not the constructor: a wrong value elsewhere must not hide them.
        """
        return iter(())


@dataclass(frozen=True)
class KeyFacts:
    """Facts of one key or block, stored in its declaration; see `option` and `block`.

    It is pydantic's ``json_schema_extra``, which is called with the JSON schema of the key.
    """

    resume: Resume = "free"
    shared: bool = False
    required: bool = False
    distributed_default: object = None
    by_behaviour: bool = False
    random: bool = False

    @property
    def fixed(self) -> str | None:
        """The reason why a resume never changes the key; None if some change is possible."""
        kind, _, reason = self.resume.partition(": ") if isinstance(self.resume, str) else ("", "", "")
        return reason if kind == "fixed" else None

    def __call__(self, schema: dict[str, Any]) -> None:
        """Leave the JSON schema of the key as it is."""


def option(
    default: Any,  # noqa: ANN401 - a default has the type of its field
    description: str,
    *,
    resume: Resume = "free",
    shared: bool = False,
    required: bool = False,
    distributed_default: object = None,
    by_behaviour: bool = False,
    **bounds: Any,  # noqa: ANN401 - handed on to pydantic
) -> Any:  # noqa: ANN401 - stands where the field's own type is declared
    """Declare one key with all its facts; resume, compatibility and generated files follow from them.

    resume: effect of another value on a resumed run. Anything that networks, optimisers, stored rows or the
            task depend on is ``fixed: reason``.
    shared: learner and actors must have the same value. True for whatever changes the networks, how an actor
            acts, or the environment.
    required: see :func:`required`.
    distributed_default: default of a distributed training where it is another one.
    by_behaviour: a behaviour of ``ma_config`` may have its own value; for keys outside blocks.
    bounds: ``ge``, ``gt``, ``le``, ``lt`` as in pydantic.
    """
    facts = KeyFacts(resume, shared, required, distributed_default, by_behaviour)
    return Field(default, description=description, json_schema_extra=facts, **bounds)


def required(description: str, **facts: Any) -> Any:  # noqa: ANN401 - as above
    """Declare a key that only a task can set: it has no default, and nothing runs without it.

    In a block made without it the key is None, whatever its type; in a configuration to be run it never is.
    """
    return option(None, description, required=True, **facts)


# Any, since it stands where the block's own type is declared.
def block(kind: type[Block], description: str, *, by_behaviour: bool = False, random: bool = False) -> Any:  # noqa: ANN401
    """Declare a block of keys within another.

    by_behaviour: a behaviour of ``ma_config`` may have its own values.
    random: it may hold ``random_params``.
    """
    facts = KeyFacts(by_behaviour=by_behaviour, random=random)
    return Field(default=kind(), description=description, json_schema_extra=facts)


def facts_of(key: FieldInfo) -> KeyFacts:
    """Return the facts that `option`, `required` or `block` stored in the declaration of a key."""
    facts = key.json_schema_extra
    return facts if isinstance(facts, KeyFacts) else KeyFacts()


def block_of(key: FieldInfo) -> type[Block] | None:
    """Return the class of a key that is a block, else None."""
    kind = key.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Block) else None
