"""Plain words for the values a key may have and for what is wrong with one, instead of the validator's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from algorithm.config.yaml_io import inline

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
_OWN = ("limit", "wrapper")  # raised beside the keys, with a sentence of its own


def in_words(schema: dict[str, Any]) -> str:
    """A JSON schema of a simple value in words: ``a whole number ≥ 1``."""
    if "anyOf" in schema:
        return " or ".join(in_words(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(str(choice) for choice in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    kind = schema.get("type", "object")
    if kind == "array" and "examples" in schema:
        return f"a list such as {inline(schema['examples'][0])}"
    if kind == "array":
        return f"a list of {_items(schema)}"
    if kind == "string" and schema.get("minLength"):
        return "text that is not empty"
    return _KINDS[kind] + _bounds(schema)


def reason(kind: str, message: str, part: object, value: object) -> str:
    """The reason why a value is refused.

    kind, message: the validator's name of the error, and its words, which only count where they are ours
    part:          what it found wrong, ``value`` itself or something in it
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
        said = _REASONS.get(kind, f"is {kind_of(part)}")
    return f"{inline(part)}{' in it' if inside else ''} {said}"


def kind_of(value: object) -> str:
    """The sort of thing that was written: ``a whole number``."""
    kinds = {bool: "a boolean", int: "a whole number", float: "a number", str: "text", list: "a list"}
    return "nothing" if value is None else kinds.get(type(value), "a mapping")


def nearest_choice(value: object, choices: Iterable[str]) -> str | None:
    """The choice that was meant, whatever the case of its letters; None if none is near."""
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
