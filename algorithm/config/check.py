"""From a merged tree to a `Config`, with every fault found on the way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from algorithm.config.errors import Problem, did_you_mean, unavailable
from algorithm.config.schema import Config
from algorithm.config.source import inline
from algorithm.config.tree import Branch, Leaf, Node, find, nearest_where, plain
from algorithm.env.config import NOT_RUNNABLE
from algorithm.fields import Block, Contradiction

KeyPath = tuple[str, ...]


def build(tree: Branch, problems: list[Problem], *, require_runnable: bool) -> Config:
    """Validate ``tree``, which has no merge keys. Faults go to ``problems``; then the defaults come back.

    require_runnable: also refuse what loads but cannot be run in this version.
    """
    before = len(problems)
    values = _known_values(tree, Config, (), problems)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        problems.extend(_validation_problems(error, tree))
        return Config()
    if require_runnable and len(problems) == before:
        problems.extend(_not_runnable(config, tree))
    return config


def block_of(field: FieldInfo) -> type[Block] | None:
    """The block class of a field that is a block, else None."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Block) else None


def extra(field: FieldInfo) -> dict[str, Any]:
    """What `option` noted about a field: ``new``, ``reserved``, ``reserved_values``."""
    noted = field.json_schema_extra
    return noted if isinstance(noted, dict) else {}


def fields(model: type[Block] = Config, path: KeyPath = ()) -> Iterator[tuple[KeyPath, FieldInfo]]:
    """Every key that holds a value, with its path, in the order of the listing."""
    for name, field in model.model_fields.items():
        block = block_of(field)
        if block is None:
            yield (*path, name), field
        else:
            yield from fields(block, (*path, name))


@cache
def field_at(path: KeyPath) -> FieldInfo | None:
    """The declaration of the key at ``path``, or None if there is no such key."""
    return dict(fields()).get(path)


def expected(path: KeyPath) -> str:
    """What may stand at ``path``, in words: ``a whole number ≥ 1``."""
    model: type[Block] = Config
    for name in path[:-1]:
        block = block_of(model.model_fields[name])
        assert block is not None, f"{path} leads through {name}, which is not a block"
        model = block
    return in_words(_properties(model)[path[-1]])


@cache
def _properties(model: type[Block]) -> dict[str, Any]:
    properties: dict[str, Any] = model.model_json_schema()["properties"]
    return properties


def in_words(schema: dict[str, Any]) -> str:
    """A JSON schema of a simple value in words."""
    if "anyOf" in schema:
        return " or ".join(in_words(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(str(choice) for choice in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array" and "prefixItems" in schema:
        return f"a list of {len(schema['prefixItems'])} numbers"
    if schema.get("type") == "array" and "examples" in schema:
        return f"a list such as {inline(schema['examples'][0])}"
    return _KINDS[schema.get("type", "object")] + _bounds(schema)


_KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


def _bounds(schema: dict[str, Any]) -> str:
    lo, hi = schema.get("minimum"), schema.get("maximum")
    if lo is not None and hi is not None:
        return f" from {lo} to {hi}"
    signs = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
    words = [f"{sign} {schema[key]}" for key, sign in signs if key in schema]
    return f" {' and '.join(words)}" if words else ""


def _known_values(tree: Branch, model: type[Block], path: KeyPath, problems: list[Problem]) -> dict[str, Any]:
    """The bare values of the keys that may be set; the others become problems and keep their defaults."""
    values: dict[str, Any] = {}
    for key, node in tree.children.items():
        here = (*path, key)
        field = model.model_fields.get(key)
        if field is None:
            problems.append(_unknown(here, node.where, model))
            continue
        block = block_of(field)
        if block is None:
            problem = _reserved(here, node, field)
            if problem is None:
                values[key] = plain(node)
            else:
                problems.append(problem)
        elif isinstance(node, Branch):
            values[key] = _known_values(node, block, here, problems)
        else:
            problems.append(_not_a_mapping(here, node))
    return values


def _reserved(path: KeyPath, node: Node, field: FieldInfo) -> Problem | None:
    value, noted = plain(node), extra(field)
    name = ".".join(path)
    default = inline(list(field.default) if isinstance(field.default, tuple) else field.default)
    part = noted.get("reserved")
    if part is not None and not _same(value, field.default):
        return unavailable(
            f"`{name}: {inline(value)}`", node.where, part, f"leave it at {default}, or remove the line"
        )
    single = noted.get("reserved_values", {})
    if isinstance(value, str) and value in single:
        return unavailable(
            f"`{name}: {value}`",
            node.where,
            single[value],
            f"use another value, such as the default {default}",
        )
    return None


def _same(value: object, default: object) -> bool:
    """Whether a written value is the default: quoted numbers are numbers, true is not 1."""
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, str) and isinstance(default, int | float):
        try:
            value = float(value)
        except ValueError:
            return False
    return isinstance(value, bool) == isinstance(default, bool) and value == default


def _unknown(path: KeyPath, where: str, model: type[Block]) -> Problem:
    key = path[-1]
    inside = ".".join(path[:-1]) or "the top level of a section"
    return Problem(
        f"unknown key `{'.'.join(path)}`",
        where,
        f"{inside} has no key `{key}`, and a misspelt key would be silently without effect",
        _suggestion(path, model),
    )


def _suggestion(path: KeyPath, model: type[Block]) -> str:
    key, inside = path[-1], path[:-1]
    homes = [".".join(p[:-1]) for p, _ in fields() if p[-1] == key and len(p) > 1]
    if homes:
        return f"`{key}` belongs under {' or '.join(homes)}"
    if inside and (key in Config.model_fields or key in ("ma_config", "inherited")):
        return f"`{key}` belongs at the top level of a section, not inside {'.'.join(inside)}"
    if key == "random_params":
        return "random_params belongs inside a block of numbers such as sac_config"
    known = [*model.model_fields, *(() if inside else ("ma_config", "inherited"))]
    close = did_you_mean(key, known)
    if close:
        return f"did you mean `{close}`?"
    elsewhere = did_you_mean(key, [p[-1] for p, _ in fields()])
    if elsewhere:
        full = next(".".join(p) for p, _ in fields() if p[-1] == elsewhere)
        return f"did you mean `{full}`?"
    return f"remove it; known here: {', '.join(known)}"


def _not_a_mapping(path: KeyPath, node: Leaf) -> Problem:
    name = ".".join(path)
    why = f"it is a block of keys, and {inline(node.value)} is {_kind(node.value)}"
    return Problem(f"`{name}` has no keys", node.where, why, f"write the keys of {name} indented below it")


def _kind(value: object) -> str:
    kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list"}
    return "nothing" if value is None else kinds.get(type(value), "a mapping")


_OWN_WORDS = ("limit", "wrapper", "greater_than", "greater_than_equal", "less_than", "less_than_equal")
"""Kinds of error whose message says more than the type of what was written."""


def _validation_problems(error: ValidationError, tree: Branch) -> Iterator[Problem]:
    told: set[KeyPath] = set()
    for item in error.errors():
        path = tuple(str(part) for part in item["loc"])
        if item["type"] == "contradiction":
            yield from (_contradiction(found, path, tree) for found in item["ctx"]["found"])
            continue
        while path and field_at(path) is None:  # pydantic goes on into unions and lists
            path = path[:-1]
        if path in told:
            continue
        told.add(path)
        reason = item["msg"] if item["type"] in _OWN_WORDS else None
        yield _wrong_value(path, item["input"], reason, tree)


def _wrong_value(path: KeyPath, part: object, reason: str | None, tree: Branch) -> Problem:
    field = field_at(path)
    assert field is not None, f"pydantic refused {path}, which is not a key"
    node: Node = tree
    for key in path:
        assert isinstance(node, Branch), f"{path} is not in the tree it was read from"
        node = node.children[key]
    value = plain(node)
    shown = inline(value)
    if not reason:
        reason = f"{inline(part)} is {_kind(part)}" if part == value else f"it is wrong at {inline(part)}"
    why = f"it must be {expected(path)}; {reason}"
    default = inline(list(field.default) if isinstance(field.default, tuple) else field.default)
    return Problem(
        f"wrong value `{'.'.join(path)}: {shown}`",
        node.where,
        why,
        f"set it to {expected(path)}; the default is {default}",
    )


def _contradiction(found: Contradiction, block: KeyPath, tree: Branch) -> Problem:
    """Points at every value that was written; the defaults alone never contradict each other."""
    paths = [(*block, *key.split(".")) for key in found.keys]
    written = [node.where for node in (find(tree, path) for path in paths) if node is not None]
    names = " and ".join(f"`{'.'.join(path)}`" for path in paths)
    return Problem(f"{names} contradict each other", " and ".join(written), found.why, found.fix)


def _not_runnable(config: Config, tree: Branch) -> Iterator[Problem]:
    base = config.base_config
    if base.env_type in NOT_RUNNABLE:
        path = ("base_config", "env_type")
        yield unavailable(
            f"`base_config.env_type: {base.env_type}`",
            nearest_where(tree, path),
            NOT_RUNNABLE[base.env_type],
            "set `env_type: GYM` and the id of a Gymnasium environment as env_name",
        )
    elif base.env_name == type(base).model_fields["env_name"].default:
        yield Problem(
            "no environment is named",
            nearest_where(tree, ("base_config", "env_name")),
            "base_config.env_name still has its default",
            "set it to a Gymnasium id such as Pendulum-v1",
        )
