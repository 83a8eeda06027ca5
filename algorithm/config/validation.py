"""From a merged tree to a `Config`, with every fault found on the way."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from algorithm.config.errors import Problem, did_you_mean, unavailable
from algorithm.config.schema import Config, KeyPath, field_at, fields
from algorithm.config.tree import Branch, Leaf, Node, find, nearest_where, plain
from algorithm.config.wording import in_words, kind_of, nearest_choice, reason
from algorithm.config.yaml_io import inline
from algorithm.env.config import NOT_RUNNABLE
from algorithm.fields import Block, Contradiction, block_of, facts_of


def build(tree: Branch, problems: list[Problem], *, runnable: str | None = None) -> Config:
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
        config = Config.model_validate(_less(values, wrong.keys()))
    problems.extend(
        _contradiction(*found, tree) for found in _contradictions(config) if _sound(*found, refused)
    )
    if runnable is not None:
        problems.extend(_not_runnable(config, tree, refused, runnable))
    return config


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


def _known_values(
    tree: Branch, model: type[Block], path: KeyPath, problems: list[Problem], refused: set[KeyPath]
) -> dict[str, Any]:
    """The bare values of the keys that may be set; the others become problems and keep their defaults.

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
            values[key] = plain(node)
        elif isinstance(node, Branch):
            values[key] = _known_values(node, block, here, problems, refused)
        else:
            problem = _not_a_mapping(here, node)
        if problem is not None:
            problems.append(problem)
            refused.add(here)
            values.pop(key, None)
    return values


def _reserved(path: KeyPath, node: Node, field: FieldInfo) -> Problem | None:
    value, facts, default = plain(node), facts_of(field), default_text(field)
    what = f"`{'.'.join(path)}: {inline(value)}`"
    if facts.reserved is not None and not _same(value, field.default):
        return unavailable(what, node.where, facts.reserved, f"leave it at {default}, or remove the line")
    part = {name.lower(): part for name, part in facts.reserved_values.items()}.get(str(value).lower())
    if part is not None:
        return unavailable(what, node.where, part, f"use another value, such as the default {default}")
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
    key, inside, meant = path[-1], path[:-1], _meant_keys(path, model)
    homes = [".".join(home[:-1]) for home in meant if home[-1] == key and len(home) > 1]
    if homes:
        return f"`{key}` belongs under {' or '.join(homes)}"
    if inside and (key in Config.model_fields or key in ("ma_config", "inherited")):
        return f"`{key}` belongs at the top level of a section, not inside {'.'.join(inside)}"
    if key == "random_params":
        return "random_params belongs inside a block of numbers such as sac_config"
    if meant:
        return f"did you mean `{meant[0][-1] if meant[0][:-1] == inside else '.'.join(meant[0])}`?"
    return f"remove it; known here: {', '.join(_known_in(path, model))}"


def _meant_keys(path: KeyPath, model: type[Block]) -> list[KeyPath]:
    """The keys that an unknown one may stand for: of its name, else near to it, here or elsewhere."""
    key, inside = path[-1], path[:-1]
    every = [known for known, _ in fields()]
    named = [known for known in every if known[-1] == key] + [(key,)] * (key in Config.model_fields)
    if named:
        return named
    close = did_you_mean(key, _known_in(path, model))
    if close:
        return [(*inside, close)]
    elsewhere = did_you_mean(key, [known[-1] for known in every])
    return [next(known for known in every if known[-1] == elsewhere)] if elsewhere else []


def _known_in(path: KeyPath, model: type[Block]) -> list[str]:
    """Names that may stand beside ``path``."""
    return [*model.model_fields, *(() if path[:-1] else ("ma_config", "inherited"))]


def _not_a_mapping(path: KeyPath, node: Leaf) -> Problem:
    name = ".".join(path)
    why = f"it is a block of keys, and {inline(node.value)} is {kind_of(node.value)}"
    return Problem(f"`{name}` has no keys", node.where, why, f"write the keys of {name} indented below it")


def _wrong_values(error: ValidationError) -> Iterator[tuple[KeyPath, ErrorDetails]]:
    """Each key with a wrong value, and the first thing that is wrong with it."""
    told: set[KeyPath] = set()
    for item in error.errors():
        path = tuple(str(part) for part in item["loc"])
        while path and field_at(path) is None:  # pydantic goes on into unions and lists
            path = path[:-1]
        if path not in told:
            told.add(path)
            yield path, item


def _less(values: Mapping[str, Any], paths: Collection[KeyPath]) -> dict[str, Any]:
    """``values`` without what stands at ``paths``."""
    kept = {}
    for key, value in values.items():
        inside = [path[1:] for path in paths if path[0] == key]
        if () not in inside:
            kept[key] = _less(value, inside) if inside else value
    return kept


def _wrong_value(path: KeyPath, item: ErrorDetails, tree: Branch) -> Problem:
    field, node = field_at(path), find(tree, path)
    assert field is not None, f"pydantic refused {path}, which is not a key"
    assert node is not None, f"{path} is not in the tree it was read from"
    value = plain(node)
    may_be = expected(path)
    return Problem(
        f"wrong value `{'.'.join(path)}: {inline(value)}`",
        node.where,
        f"it must be {may_be}; {reason(item['type'], item['msg'], item['input'], value)}",
        f"{_meant_choice(value, field)}set it to {may_be}"
        + (f"; the default is {default_text(field)}" if not facts_of(field).required else ""),
    )


def _meant_choice(value: object, field: FieldInfo) -> str:
    """``did you mean …?`` where text stands for one of a few values, else nothing."""
    kinds = (field.annotation, *get_args(field.annotation))
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if type(None) in kinds and str(value).lower() in ("none", "nil"):
        close: str | None = "null"
    else:
        close = nearest_choice(value, set(choices) - set(facts_of(field).reserved_values))
    return f"did you mean `{close}`? " if close and isinstance(value, str) else ""


def default_text(field: FieldInfo) -> str:
    """Return the default of a key on one line of YAML."""
    return inline(list(field.default) if isinstance(field.default, tuple) else field.default)


_Found = tuple[KeyPath, Contradiction]


def _contradictions(block: Block, path: KeyPath = ()) -> Iterator[_Found]:
    """All of a block and of the blocks within, each with the path of the block that says it."""
    for name, field in type(block).model_fields.items():
        if block_of(field) is not None:
            yield from _contradictions(getattr(block, name), (*path, name))
    yield from ((path, found) for found in block.contradictions())


def _paths(block: KeyPath, found: Contradiction) -> list[KeyPath]:
    return [(*block, *key.split(".")) for key in found.keys]


def _sound(block: KeyPath, found: Contradiction, refused: Collection[KeyPath]) -> bool:
    """True if none of the keys was refused: what stands there now would be a default, which nobody wrote."""
    return not any(_is_refused(path, refused) for path in _paths(block, found))


def _is_refused(path: KeyPath, refused: Collection[KeyPath]) -> bool:
    return any(path[: len(bad)] == bad for bad in refused)


def _contradiction(block: KeyPath, found: Contradiction, tree: Branch) -> Problem:
    """Points at every value that was written; the defaults alone never contradict each other."""
    paths = _paths(block, found)
    written = [node.where for node in (find(tree, path) for path in paths) if node is not None]
    names = " and ".join(f"`{'.'.join(path)}`" for path in paths)
    return Problem(f"{names} contradict each other", " and ".join(written), found.why, found.fix)


def _not_runnable(config: Config, tree: Branch, refused: Collection[KeyPath], file: str) -> Iterator[Problem]:
    base = config.base_config
    path = ("base_config", "env_type")
    if base.env_type in NOT_RUNNABLE:
        yield unavailable(
            f"`base_config.env_type: {base.env_type}`",
            nearest_where(tree, path),
            NOT_RUNNABLE[base.env_type],
            "set `env_type: GYM` and the id of a Gymnasium environment as env_name",
        )
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
