"""Validation of a merged tree: the `Config`, and every fault in plain words."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from algorithm.agents.registry import misplaced
from algorithm.config.elsewhere import our_names
from algorithm.config.errors import Problem, did_you_mean, unavailable
from algorithm.config.schema import Config, KeyPath, field_at, fields
from algorithm.config.tree import MappingNode, Node, ValueNode, find, to_value
from algorithm.config.yaml_io import inline
from algorithm.core.fields import Block, Contradiction, block_of, facts_of

_KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}
_SEVERAL = {
    "integer": "whole numbers",
    "number": "numbers",
    "boolean": "true or false",
    "string": "texts",
    "array": "lists",
    "object": "mappings",
}
_REASONS = {
    "greater_than": "is too small",
    "greater_than_equal": "is too small",
    "less_than": "is too large",
    "less_than_equal": "is too large",
    "literal_error": "is none of these",
    "string_too_short": "is empty",
}
_LENGTHS = ("missing", "too_short", "too_long")
_OWN = ("limit", "entry")  # raised beside the keys, with a sentence of its own


def build(tree: MappingNode, problems: list[Problem], *, runnable: str | None = None) -> Config:
    """Validate ``tree``, which has no merge keys. Faults go to ``problems``; a refused key has its default.

    runnable: also refuse what cannot be run in this version or names no environment; this is the place to
              write what is missing.
    """
    refused: set[KeyPath] = set()
    values = _known_values(tree, Config, (), problems, refused)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        wrong = dict(_wrong_values(error))
        problems.extend(_wrong_value(path, part, tree) for path, part in wrong.items())
        refused |= wrong.keys()
        config = Config.model_validate(_without(values, wrong.keys()))
    problems.extend(
        _contradiction(*found, tree) for found in _contradictions(config) if _all_accepted(*found, refused)
    )
    if runnable is not None:
        problems.extend(_no_environment(tree, refused, runnable))
    return config


def expected(path: KeyPath) -> str:
    """Return the values that ``path`` may have, in words: ``a whole number ≥ 1``."""
    model: type[Block] = Config
    for name in path[:-1]:
        block = block_of(model.model_fields[name])
        assert block is not None, f"{path} leads through {name}, which is not a block"
        model = block
    return _in_words(_properties(model)[path[-1]])


@cache
def _properties(model: type[Block]) -> dict[str, Any]:
    properties: dict[str, Any] = model.model_json_schema()["properties"]
    return properties


def _known_values(
    tree: MappingNode, model: type[Block], path: KeyPath, problems: list[Problem], refused: set[KeyPath]
) -> dict[str, Any]:
    """Return the values of the keys that may be set; the others become problems and keep their defaults.

    refused: gets the keys whose value was meant to be another one than their default
    """
    values: dict[str, Any] = {}
    for key, node in tree.children.items():
        here = (*path, key)
        field = model.model_fields.get(key)
        if field is None:
            problems.append(_unknown(here, node.where, model))
            refused.update(_meant_keys(here, model))
            continue
        block = block_of(field)
        problem = None
        if block is None:
            problem = _reserved(here, node, field)
            values[key] = to_value(node)
        elif isinstance(node, MappingNode):
            values[key] = _known_values(node, block, here, problems, refused)
        else:
            problem = _not_a_mapping(here, node)
        if problem is not None:
            problems.append(problem)
            refused.add(here)
            values.pop(key, None)
    return values


def _reserved(path: KeyPath, node: Node, field: FieldInfo) -> Problem | None:
    value, facts, default = to_value(node), facts_of(field), default_text(field)
    what = f"`{'.'.join(path)}: {inline(value)}`"
    part = {name.lower(): part for name, part in facts.reserved_values.items()}.get(str(value).lower())
    if part is not None:
        return unavailable(what, node.where, part, f"use another value, such as the default {default}")
    return None


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
    key, inside, meant = path[-1], path[:-1], _meant_keys(path, model)
    homes = [".".join(home[:-1]) for home in meant if home[-1] == key and len(home) > 1]
    if homes:
        return f"`{key}` belongs under {' or '.join(homes)}"
    if inside and (key in Config.model_fields or key in ("ma_config", "inherited")):
        return f"`{key}` belongs at the top level of a section, not inside {'.'.join(inside)}"
    if key == "random_params":
        return "random_params belongs inside a block of numbers such as sac_config"
    if meant:
        names = [home[-1] if home[:-1] == inside else ".".join(home) for home in meant]
        return f"did you mean {' or '.join(f'`{name}`' for name in names)}?"
    return f"remove it; known here: {', '.join(_known_in(path, model))}"


def _meant_keys(path: KeyPath, model: type[Block]) -> list[KeyPath]:
    """Return the keys that an unknown one may stand for: of its name, else near to it, here or elsewhere."""
    key, inside = path[-1], path[:-1]
    every = [known for known, _ in fields()]
    named = [known for known in every if known[-1] == key] + [(key,)] * (key in Config.model_fields)
    if named:
        return named
    ours = [known for known in every if known[-1] in our_names(key) and len(known) <= 2]
    if ours:
        return [known for known in ours if known[:-1] == inside] or ours
    close = did_you_mean(key, _known_in(path, model))
    if close:
        return [(*inside, close)]
    elsewhere = did_you_mean(key, [known[-1] for known in every])
    return [next(known for known in every if known[-1] == elsewhere)] if elsewhere else []


def _known_in(path: KeyPath, model: type[Block]) -> list[str]:
    """Return the names that may stand beside ``path``."""
    return [*model.model_fields, *(() if path[:-1] else ("ma_config", "inherited"))]


def _not_a_mapping(path: KeyPath, node: ValueNode) -> Problem:
    name = ".".join(path)
    why = f"it is a block of keys, and {inline(node.value)} is {_kind_of(node.value)}"
    return Problem(f"`{name}` has no keys", node.where, why, f"write the keys of {name} indented below it")


def _wrong_values(error: ValidationError) -> Iterator[tuple[KeyPath, ErrorDetails]]:
    """Yield each key with a wrong value, and its first error."""
    seen: set[KeyPath] = set()
    for item in error.errors():
        path = tuple(str(part) for part in item["loc"])
        while path and field_at(path) is None:  # pydantic goes on into unions and lists
            path = path[:-1]
        if path not in seen:
            seen.add(path)
            yield path, item


def _without(values: Mapping[str, Any], paths: Collection[KeyPath]) -> dict[str, Any]:
    """Return ``values`` without the keys at ``paths``."""
    kept = {}
    for key, value in values.items():
        inside = [path[1:] for path in paths if path[0] == key]
        if () not in inside:
            kept[key] = _without(value, inside) if inside else value
    return kept


def _wrong_value(path: KeyPath, item: ErrorDetails, tree: MappingNode) -> Problem:
    field, node = field_at(path), find(tree, path)
    assert field is not None, f"pydantic refused {path}, which is not a key"
    assert node is not None, f"{path} is not in the tree it was read from"
    value = to_value(node)
    what = f"wrong value `{'.'.join(path)}: {inline(value)}`"
    if item["type"] == "plugin":  # its own sentences
        return Problem(what, node.where, item["msg"], item["ctx"]["fix"])
    may_be = expected(path)
    return Problem(
        what,
        node.where,
        f"it must be {may_be}; {_reason(item['type'], item['msg'], item['input'], value)}",
        f"{_meant_choice(value, field)}set it to {may_be}"
        + (f"; the default is {default_text(field)}" if not facts_of(field).required else ""),
    )


def _meant_choice(value: object, field: FieldInfo) -> str:
    """Return ``did you mean …?`` where text stands for one of a few values, else nothing."""
    kinds = (field.annotation, *get_args(field.annotation))
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if type(None) in kinds and str(value).lower() in ("none", "nil"):
        close: str | None = "null"
    else:
        close = _nearest_choice(value, set(choices) - set(facts_of(field).reserved_values))
    return f"did you mean `{close}`? " if close and isinstance(value, str) else ""


def default_text(field: FieldInfo) -> str:
    """Return the default of a key on one line of YAML."""
    return inline(list(field.default) if isinstance(field.default, tuple) else field.default)


_Found = tuple[KeyPath, Contradiction]


def _contradictions(block: Block, path: KeyPath = ()) -> Iterator[_Found]:
    """Yield those of a block and of the blocks within, each with the path of its block."""
    for name, field in type(block).model_fields.items():
        if block_of(field) is not None:
            yield from _contradictions(getattr(block, name), (*path, name))
    yield from ((path, found) for found in block.contradictions())


def _paths(block: KeyPath, found: Contradiction) -> list[KeyPath]:
    return [(*block, *key.split(".")) for key in found.keys]


def _all_accepted(block: KeyPath, found: Contradiction, refused: Collection[KeyPath]) -> bool:
    """Return whether none of the keys was refused; a refused one has a default that was never written."""
    return not any(_is_refused(path, refused) for path in _paths(block, found))


def _is_refused(path: KeyPath, refused: Collection[KeyPath]) -> bool:
    return any(path[: len(bad)] == bad for bad in refused)


def _contradiction(block: KeyPath, found: Contradiction, tree: MappingNode) -> Problem:
    """Return the problem, with the place of every written value; defaults never contradict each other."""
    paths = _paths(block, found)
    written = [node.where for node in (find(tree, path) for path in paths) if node is not None]
    names = " and ".join(f"`{'.'.join(path)}`" for path in paths)
    what = "contradict each other" if len(paths) > 1 else "cannot be used"
    return Problem(f"{names} {what}", " and ".join(written), found.why, found.fix)


def refuse_misplaced(
    config: Config, behaviours: Mapping[str, Config], written: Sequence[MappingNode], problems: list[Problem]
) -> None:
    """Report keys of other families than the chosen one.

    written: what was set for this run: the chosen section and overrides, not what they inherit
    """
    for tree in written:
        for (block, key), node in _keys(tree):
            _report_misplaced(config.algorithm, (block, key), node, "", problems)
        for name, own in behaviours.items():
            part = find(tree, ("ma_config", name))
            for (block, key), node in _keys(part) if part is not None else ():
                _report_misplaced(own.algorithm, (block, key), node, f"ma_config.{name}.", problems)


def _keys(tree: Node) -> Iterator[tuple[tuple[str, str], Node]]:
    for block, inner in tree.children.items() if isinstance(tree, MappingNode) else ():
        for key, node in inner.children.items() if isinstance(inner, MappingNode) else ():
            yield (block, key), node
            if block == "nn_config" and isinstance(node, MappingNode):
                yield from (((block, f"{key}.{name}"), below) for name, below in node.children.items())


def _report_misplaced(
    algorithm: str, path: tuple[str, str], node: Node, prefix: str, problems: list[Problem]
) -> None:
    if path[0] != "nn_config" and field_at(path) is None:
        return  # an unknown key has been reported as such
    found = misplaced(algorithm, *path)
    if found is not None:
        why, fix = found
        problems.append(Problem(f"`{prefix}{'.'.join(path)}` has no effect", node.where, why, fix))


def _no_environment(tree: MappingNode, refused: Collection[KeyPath], file: str) -> Iterator[Problem]:
    missing = [
        path
        for path, field in fields()
        if facts_of(field).required and find(tree, path) is None and not _is_refused(path, refused)
    ]
    if missing:
        names = " and ".join(f"`{'.'.join(path)}`" for path in missing)
        lines = [line for key, line in _ENVIRONMENT.items() if ("base_config", key) in missing]
        yield Problem(
            f"{names} {'is' if len(missing) == 1 else 'are'} missing",
            file,
            "only the task can know its environment: there is no default",
            "\n".join(["write, for example", "base_config:", *(f"  {line}" for line in lines)]),
        )


_ENVIRONMENT = {
    "env_type": "env_type: GYM",
    "env_name": "env_name: Pendulum-v1   # any Gymnasium id, module:Id or file.py:Id",
}


def _in_words(schema: dict[str, Any]) -> str:
    """Return a JSON schema of a simple value in words: ``a whole number ≥ 1``."""
    if "anyOf" in schema:
        return " or ".join(choice.get("title") or _in_words(choice) for choice in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " or ".join(str(choice) for choice in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "object")
    if kind == "array" and "examples" in schema:
        return f"a list such as {inline(schema['examples'][0])}"
    if kind == "array":
        return f"a list of {_items(schema)}"
    if kind == "string" and schema.get("minLength"):
        return "text that is not empty"
    return _KINDS[kind] + _bounds(schema)


def _reason(kind: str, message: str, part: object, value: object) -> str:
    """Return the reason why a value is refused.

    kind, message: the validator's name of the error, and its words, used only for our own validators
    part:          the wrong part, ``value`` itself or something in it
    """
    if kind in _OWN:
        return message
    if kind in _LENGTHS and isinstance(value, list):
        return f"it has {len(value)} value{'s' * (len(value) != 1)}"
    inside = isinstance(value, list | dict) and part != value
    part = part if inside else value
    if isinstance(part, float) and not math.isfinite(part):
        said = "is not finite"
    elif isinstance(part, float) and kind == "int_type":  # 2.0 became 2 before
        said = "has a fraction"
    else:
        said = _REASONS.get(kind, f"is {_kind_of(part)}")
    return f"{inline(part)}{' in it' if inside else ''} {said}"


def _kind_of(value: object) -> str:
    """Return the sort of value that was written: ``a whole number``."""
    kinds = {bool: "a boolean", int: "a whole number", float: "a number", str: "text", list: "a list"}
    return "nothing" if value is None else kinds.get(type(value), "a mapping")


def _nearest_choice(value: object, choices: Iterable[str]) -> str | None:
    """Return the choice nearest to ``value``, whatever the case of its letters; None if none is near."""
    by_lower = {choice.lower(): choice for choice in choices}
    close = get_close_matches(str(value).lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def _items(schema: dict[str, Any]) -> str:
    if "prefixItems" in schema:
        return f"{len(schema['prefixItems'])} {_several(schema['prefixItems'][0])}"
    return _several(schema.get("items", {}))


def _several(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_several(choice) for choice in schema["anyOf"])
    return _SEVERAL[schema.get("type", "object")] + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    lo, hi = schema.get("minimum"), schema.get("maximum")
    if lo is not None and hi is not None:
        return f" from {lo} to {hi}"
    signs = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
    words = [f"{sign} {schema[key]}" for key, sign in signs if key in schema]
    return f" {' and '.join(words)}" if words else ""
