"""Messages for the faults of a tree that pydantic refuses as a `Config`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache, reduce
from operator import getitem
from typing import Any, Literal, cast, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from algorithm.config.errors import Problem, did_you_mean
from algorithm.config.schema import Config, field_at, fields
from algorithm.config.tree import KeyPath, Node, to_value
from algorithm.config.yaml_io import inline
from algorithm.core.fields import Block, Contradiction, facts_of

_KINDS = {
    "integer": ("a whole number", "whole numbers"),
    "number": ("a number", "numbers"),
    "boolean": ("true or false", "true or false"),
    "string": ("text", "texts"),
    "array": ("a list", "lists"),
    "object": ("a mapping", "mappings"),
    "null": ("null", "null"),
}
"""Type of a JSON schema -> one such value, and several."""

_UNKNOWN = "extra_forbidden"
_NO_BLOCK = "model_type"
_OWN = ("limit", "entry")  # raised beside the keys, with a sentence of its own
_ENVIRONMENT = {
    "env_type": "  env_type: GYM",
    "env_name": "  env_name: Pendulum-v1   # any Gymnasium id, module:Id or file.py:Id",
}


def without_faults(
    error: ValidationError, values: dict[str, Any], tree: Node, problems: list[Problem]
) -> tuple[Config, list[KeyPath]]:
    """Return the configuration without the values that pydantic refuses, and add a problem for each.

    values: the tree's, from which refused ones are removed
    Return also the paths of the keys and blocks that now have their default.
    """
    wrong = _first_errors(error)
    problems += [_problem(path, item, tree) for path, item in wrong.items()]
    refused: list[KeyPath] = []
    for path, item in wrong.items():
        reduce(getitem, path[:-1], values).pop(path[-1])
        refused += _meant_keys(path) if item["type"] == _UNKNOWN else [path]
    return Config.model_validate(values), refused


def expected(path: KeyPath) -> str:
    """Return the values that ``path`` may have, in words: ``a whole number ≥ 1``."""
    return _in_words(schema_of(path))


def schema_of(path: KeyPath) -> dict[str, Any]:
    """Return the JSON schema of a key."""
    return cast("dict[str, Any]", _properties(_block_at(path[:-1]))[path[-1]])


def default_text(field: FieldInfo) -> str:
    """Return the default of a key on one line of YAML."""
    return inline(list(field.default) if isinstance(field.default, tuple) else field.default)


def _block_at(path: KeyPath) -> type[Block]:
    """Return the class of the block at a path."""
    model: Any = Config
    for name in path:
        model = model.model_fields[name].annotation
    return cast(type[Block], model)


@cache
def _properties(model: type[Block]) -> dict[str, Any]:
    """Return name -> JSON schema of a block's keys."""
    return cast("dict[str, Any]", model.model_json_schema()["properties"])


def _first_errors(error: ValidationError) -> dict[KeyPath, ErrorDetails]:
    """Return path of a key or block → its first error."""
    first: dict[KeyPath, ErrorDetails] = {}
    for item in error.errors():
        path = tuple(map(str, item["loc"]))
        if item["type"] not in (_UNKNOWN, _NO_BLOCK):
            while field_at(path) is None:  # pydantic goes on into unions and lists
                path = path[:-1]
        first.setdefault(path, item)
    return first


def _problem(path: KeyPath, item: ErrorDetails, tree: Node) -> Problem:
    """Return the problem for an error of pydantic: an unknown key, a block without keys, a wrong value."""
    node, name = tree.find(path), ".".join(path)
    assert node is not None, f"{path} is not in the tree it was read from"
    if item["type"] == _UNKNOWN:
        inside = ".".join(path[:-1]) or "the top level of a section"
        why = f"{inside} has no key `{path[-1]}`, and a misspelt key would be silently ignored"
        return Problem(f"unknown key `{name}`", node.where, why, _suggestion(path))
    if item["type"] == _NO_BLOCK:
        fix = f"write the keys of {name} indented below it"
        return Problem(f"`{name}` has no keys", node.where, "it is a block of keys, not a value", fix)
    return _wrong_value(path, item, node)


def _suggestion(path: KeyPath) -> str:
    """Return advice on an unknown key: its right place, or similar keys."""
    key, inside, meant = path[-1], path[:-1], _meant_keys(path)
    homes = [".".join(home[:-1]) for home in meant if home[-1] == key and len(home) > 1]
    if homes:
        return f"`{key}` belongs under {' or '.join(homes)}"
    if inside and key in _known_in(()):
        return f"`{key}` belongs at the top level of a section, not inside {'.'.join(inside)}"
    if key == "random_params":
        return "random_params belongs inside a block of numbers such as sac_config"
    if meant:
        names = [home[-1] if home[:-1] == inside else ".".join(home) for home in meant]
        return f"did you mean {' or '.join(f'`{name}`' for name in names)}?"
    return f"remove it; known here: {', '.join(_known_in(inside))}"


def _meant_keys(path: KeyPath) -> list[KeyPath]:
    """Return the keys that an unknown one may mean: of its name in other blocks, or of a similar name."""
    key, inside = path[-1], path[:-1]
    every = [known for known, _ in fields()]
    named = [known for known in every if known[-1] == key] + [(key,)] * (key in Config.model_fields)
    if named:
        return named
    close = did_you_mean(key, _known_in(inside))
    if close:
        return [(*inside, close)]
    name = did_you_mean(key, [known[-1] for known in every])
    return [known for known in every if known[-1] == name][:1]


def _known_in(inside: KeyPath) -> list[str]:
    """Return the names that are valid in a block, or at the top level of a section."""
    return [*_block_at(inside).model_fields, *(() if inside else ("ma_config", "inherited"))]


def _wrong_value(path: KeyPath, item: ErrorDetails, node: Node) -> Problem:
    """Return the problem for a wrong value, with the valid ones and the default."""
    field, value = field_at(path), to_value(node)
    assert field is not None, f"pydantic refused {path}, which is not a key"
    what = f"wrong value `{'.'.join(path)}: {inline(value)}`"
    if item["type"] == "plugin":  # its own sentences
        return Problem(what, node.where, item["msg"], item["ctx"]["fix"])
    may_be = expected(path)
    default = "" if facts_of(field).required else f"; the default is {default_text(field)}"
    part, why = item["input"], f"it must be {may_be}"
    if item["type"] in _OWN:
        why += f"; {item['msg']}"
    elif isinstance(value, list | dict) and part != value:
        why += f"; `{inline(part)}` in it is not"
    return Problem(what, node.where, why, f"{_meant_choice(value, field)}set it to {may_be}{default}")


def _meant_choice(value: object, field: FieldInfo) -> str:
    """Return ``did you mean …?`` if a text is similar to a valid choice, else nothing."""
    kinds = (field.annotation, *get_args(field.annotation))
    choices = {
        choice.lower(): choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)
    }
    if type(None) in kinds:
        choices |= {"none": "null", "nil": "null"}
    close = get_close_matches(str(value).lower(), choices, n=1)
    return f"did you mean `{choices[close[0]]}`? " if close and isinstance(value, str) else ""


def contradiction(paths: Sequence[KeyPath], clash: Contradiction, tree: Node) -> Problem:
    """Return the problem of a contradiction, with the place of every written value."""
    written = [node.where for path in paths if (node := tree.find(path)) is not None]
    names = " and ".join(f"`{'.'.join(path)}`" for path in paths)
    what = "contradict each other" if len(paths) > 1 else "cannot be used"
    return Problem(f"{names} {what}", " and ".join(written), clash.why, clash.fix)


def missing_environment(tree: Node, refused: Sequence[KeyPath], place: str) -> Iterator[Problem]:
    """Yield the fault if a tree names no environment. place: file and section to name it in."""
    required = [path for path, field in fields() if facts_of(field).required and tree.find(path) is None]
    missing = [path for path in required if not any(path[: len(bad)] == bad for bad in refused)]
    if not missing:
        return
    names = " and ".join(f"`{'.'.join(path)}`" for path in missing)
    why = "every task needs its own environment: there is no default"
    lines = ["write, for example", "base_config:", *(_ENVIRONMENT[path[-1]] for path in missing)]
    yield Problem(f"{names} {'is' if len(missing) == 1 else 'are'} missing", place, why, "\n".join(lines))


def _in_words(schema: dict[str, Any], *, several: bool = False) -> str:
    """Return a JSON schema of a simple value in words: ``a whole number ≥ 1``, ``whole numbers ≥ 1``."""
    if "anyOf" in schema:
        parts = [choice.get("title") or _in_words(choice, several=several) for choice in schema["anyOf"]]
        return " or ".join(parts)
    if "enum" in schema or "const" in schema:
        return " or ".join(str(choice) for choice in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "object")
    if kind == "array" and "examples" in schema:
        return f"a list such as {inline(schema['examples'][0])}"
    if kind == "array" and not several:
        items = schema.get("prefixItems", [schema.get("items", {})])
        count = f"{len(items)} " if "prefixItems" in schema else ""
        return f"a list of {count}{_in_words(items[0], several=True)}"
    if kind == "string" and schema.get("minLength") and not several:
        return "text that is not empty"
    return _KINDS[kind][several] + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    """Return the bounds of a number in words: `` from 1 to 3``, `` ≥ 1``."""
    if {"minimum", "maximum"} <= schema.keys():
        return f" from {schema['minimum']} to {schema['maximum']}"
    signs = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
    words = [f"{sign} {schema[key]}" for key, sign in signs if key in schema]
    return f" {' and '.join(words)}" if words else ""
