"""Contradictions of ``environment_parameters`` and Unity's ``reset_config``; what a resumed run changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from algorithm.core.fields import AnyConfig, Contradiction
from algorithm.env.parameters.config import (
    FORMS,
    KEY,
    SAMPLERS,
    EnvParameter,
    lessons_by_name,
    read_parameters,
)

_COMPARE = "see docs/curriculum.md"

LARGEST = 3.4028234e38
"""The largest float of 32 bits, which is what Unity reads."""


def wrong_parameters(config: AnyConfig) -> Iterator[Contradiction]:
    """Yield the faults of ``environment_parameters``, given the whole configuration."""
    values, kind = config.environment_parameters, config.base_config.kind
    # Place -> key that sets it.
    taken = {place: place for place in (f"reset_config.{name}" for name in config.reset_config or ())}
    for name, value in values.items():
        path = f"{KEY}.{name}"
        try:
            parameter = EnvParameter.model_validate(value)
        except ValidationError as error:
            yield from (_wrong(name, value, item) for item in error.errors())
            continue
        other = taken.setdefault(parameter.set or f"reset_config.{name}", path)
        if other != path:
            why = "both would set the same thing at every reset"
            yield Contradiction((path, other), why, "remove one of them")
        if kind.parameters:
            yield from _unity(path, name, parameter)
        ends = [lesson.completion_criteria for lesson in parameter.curriculum or ()]
        if config.base_config.max_step == -1 and any(end and end.measure == "progress" for end in ends):
            why = "measure: progress is the share of max_step, and max_step is -1"
            yield Contradiction((path, "base_config.max_step"), why, "set max_step, or measure: reward")
        if not config.self_play.window and any(end and end.measure == "elo" for end in ends):
            why = "measure: elo is the rating of self-play, and self_play.window is 0"
            yield Contradiction(
                (path, "self_play.window"), why, "set self_play.window: 10, or measure: reward"
            )
        stops = isinstance(config.base_config.stop_at_return, float)
        if stops and parameter.lessons and config.eval_config.lesson == "current":
            keys = ("base_config.stop_at_return", "eval_config.lesson")
            why = f"an evaluation in an early lesson of {name} would end the training"
            yield Contradiction(keys, why, "set lesson: last, or stop_at_return: null")


def other_lessons(old: AnyConfig, new: AnyConfig) -> str:
    """Return the effect of other parameters on a resumed run; names and order of lessons must not change."""
    before, after = (lessons_by_name(read_parameters(config.environment_parameters)) for config in (old, new))
    for name, lessons in before.items():
        now = after.get(name, ())
        if lessons != now:
            is_now = f"are {', '.join(now)}" if now else "there are none"
            were = f"the lessons of {name} were {', '.join(lessons)}"
            return f"fixed: {were} and {is_now}; the run is in one of them"
    return "free: from each environment's next reset on; open episodes keep their values"


def _unity(path: str, name: str, parameter: EnvParameter) -> Iterator[Contradiction]:
    """Yield the features of a parameter that a Unity player cannot have."""
    if not name.isascii():
        why = "its name has non-ASCII characters"
        yield Contradiction((path,), why, "Unity cannot read them: rename it")
    if parameter.set is not None:
        why = "`set` names an attribute, and a Unity player gets parameters by name"
        yield Contradiction((f"{path}.set",), why, "leave `set` out; the scene reads the name")
    if any(abs(number) > LARGEST for value in parameter.values for number in value.numbers):
        yield Contradiction((path,), f"Unity reads numbers up to ±{LARGEST:.1e}", "write smaller ones")


def _wrong(name: str, value: object, item: ErrorDetails) -> Contradiction:
    """Return the contradiction for a value that pydantic refused, with its place in the parameter."""
    path, inside, at = [KEY, name], list[str](), value
    for part in item["loc"]:  # names of kinds of samplers are in it, too
        if isinstance(at, Mapping) and part in at:
            at = at[part]
            (inside or path).append(str(part))
        elif isinstance(at, list | tuple) and isinstance(part, int) and part < len(at):
            at = at[part]  # of a list there is one place in the file
            lesson = at.get("name") if isinstance(at, Mapping) else None
            inside.append(f"number {part + 1}" if lesson is None else repr(lesson))
    why, fix = _words(item, FORMS if path == [KEY, name] else _COMPARE)
    return Contradiction((".".join(path),), "".join(f"{step}: " for step in inside) + why, fix)


def _words(item: ErrorDetails, fix: str) -> tuple[str, str]:
    """Return reason and advice for an error of pydantic; ``fix`` is the advice if it has none of its own."""
    value, last = item["input"], item["loc"][-1] if item["loc"] else ""
    if item["type"] == "parameter":
        return item["ctx"]["why"], item["ctx"]["fix"]
    if item["type"] == "union_tag_invalid":
        return f"there is no sampler_type {item['ctx']['tag']}", f"use one of {', '.join(SAMPLERS)}"
    if item["type"] == "missing":
        return f"`{last}` is missing", fix
    if item["type"] == "extra_forbidden":
        return f"there is no key `{last}`", _COMPARE
    return f"{value!r:.60}: {item['msg'].replace('Input should', 'it must')}", fix


def wrong_numbers(reset_config: Mapping[str, Any] | None) -> Iterator[Contradiction]:
    """Yield the entries of ``reset_config`` that are not float32 numbers, as a Unity player requires."""
    for name, value in (reset_config or {}).items():
        path = (f"reset_config.{name}",)
        if not str(name).isascii():
            why = "its name has non-ASCII characters"
            yield Contradiction(path, why, "Unity cannot read them: rename it")
        elif not isinstance(value, int | float) or not abs(value) <= LARGEST:
            fix = f"give a number up to ±{LARGEST:.1e}; samplers and curricula belong in {KEY}"
            yield Contradiction(path, f"it is {value!r:.60}", fix)
