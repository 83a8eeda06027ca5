"""The space of a study: its parameters, and the values that each may have."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, Strict, ValidationError

from algorithm.config.errors import ConfigError, Problem, did_you_mean
from algorithm.config.resolve import SEED_PATH
from algorithm.config.schema import Config, field_at, fields
from algorithm.config.tree import KeyPath
from algorithm.config.validation import expected, schema_of
from algorithm.config.yaml_io import inline
from algorithm.core.fields import Block, Finite, Positive

_FORMS = "{in: [...]} or {truncated: [lo, hi]}, the latter with log: true or step: s"
_OWN = ("tune_config", "base_config.name", ".".join(SEED_PATH))
"""What a study itself sets."""


class _Entry(Block):
    """An entry of ``tune_config.params``."""

    choices: Annotated[tuple[Any, ...], Strict(False), Field(min_length=1)] | None = Field(None, alias="in")
    truncated: Annotated[tuple[Finite, Finite], Strict(False)] | None = None
    log: bool = False
    step: Positive | None = None


@dataclass(frozen=True)
class Parameter:
    """One parameter: choices, or numbers between bounds.

    log:   evenly on a logarithmic scale; step: multiples of it above the lower bound
    whole: the numbers are whole
    """

    choices: Sequence[object] = ()
    bounds: tuple[float, float] = (0.0, 0.0)
    log: bool = False
    step: float | None = None
    whole: bool = False

    @property
    def values(self) -> Sequence[object] | None:
        """All values in their order; None where there are endlessly many."""
        if self.choices:
            return self.choices
        low, high = self.bounds
        step = self.step or (1 if self.whole and not self.log else None)
        if step is None:
            return None
        count = math.floor((high - low) / step + 1e-9) + 1
        return [self.number(low + step * index) for index in range(count)]

    def number(self, value: float) -> int | float:
        """Return a number of this parameter's kind."""
        return round(value) if self.whole else float(value)

    def place(self, value: object) -> float:
        """Return where a value lies between the least, 0, and the greatest, 1; choices in their order."""
        if self.choices:
            return list(self.choices).index(value) / max(1, len(self.choices) - 1)
        assert isinstance(value, int | float), "numbers lie between bounds"
        low, high, x = (math.log(v) if self.log else v for v in (*self.bounds, value))
        return (x - low) / (high - low) if high > low else 0.5


SearchSpace = Mapping[str, Parameter]
"""Dotted path -> parameter."""


def read_space(params: Mapping[str, object]) -> SearchSpace:
    """Return the space that ``tune_config.params`` describes. Raises ConfigError with every fault."""
    found: dict[str, Parameter] = {}
    problems: list[Problem] = []
    for path, entry in params.items():
        parameter = _parameter(path, entry)
        if isinstance(parameter, Parameter):
            found[path] = parameter
        else:
            problems.append(parameter)
    if problems:
        raise ConfigError(problems)
    return found


def grid(space: SearchSpace) -> Iterator[dict[str, object]]:
    """Yield every combination of a space whose parameters all have a number of values."""
    columns = [parameter.values or () for parameter in space.values()]
    return (dict(zip(space, row, strict=True)) for row in itertools.product(*columns))


def _parameter(path: str, entry: object) -> Parameter | Problem:
    """Return a parameter, or what is wrong with its entry."""
    where, key = f"tune_config.params.{path}", tuple(path.split("."))
    if path.startswith(_OWN):
        return Problem(f"`{path}` cannot be searched", where, "a study sets it itself", "leave it out")
    if not (field_at(key) or _is_mapping(key[:-1])):
        close = did_you_mean(path, [".".join(known) for known, _ in fields()])
        fix = f"did you mean `{close}`?" if close else "write its whole path: sac_config.learning_rate"
        return Problem(f"`{path}` cannot be searched", where, "there is no such key", fix)
    try:
        read = _Entry.model_validate(entry)
        given = read.choices or read.truncated
        why = "" if given and not (read.choices and (read.truncated or read.log or read.step)) else "one form"
    except ValidationError:
        why = "a form"
    if why:
        return Problem(f"`{path}` needs {why}", where, f"it is {inline(entry)}", f"write {_FORMS}")
    wrong = [value for value in given or () if field_at(key) and not _is_valid(key, value)]
    if wrong:
        what = f"`{path}` cannot be {inline(wrong[0])}"
        return Problem(what, where, f"it must be {expected(key)}", "search other values")
    return Parameter(choices=read.choices) if read.choices else _numbers(path, read, where)


def _is_valid(key: KeyPath, value: object) -> bool:
    """Return whether a key may have a value; whether that goes with others shows in a draw."""
    for name in reversed(key):
        value = {name: value}
    try:
        Config.model_validate(value)
    except ValidationError:
        return False
    return True


def _numbers(path: str, read: _Entry, where: str) -> Parameter | Problem:
    """Return a parameter of numbers, or what is wrong with them."""
    assert read.truncated is not None
    key = tuple(path.split("."))
    low, high = read.truncated
    kinds = _kinds(key) if field_at(key) else {"number" if _fraction(read) else "integer"}
    if not kinds & {"number", "integer"}:
        return Problem(f"`{path}` is no number", where, "it has no interval", "write {in: [...]}")
    whole = "number" not in kinds
    if whole:
        low, high = math.ceil(low), math.floor(high)
    why = {
        "the interval is empty": low >= high,
        "a logarithm needs numbers above 0": read.log and low <= 0,
        "log and step exclude each other": read.log and read.step is not None,
        "the step is no whole number, and the key's are": whole and (read.step or 1) % 1 != 0,
        "the step is longer than the interval": read.step is not None and read.step > high - low,
    }
    for text, holds in why.items():
        if holds:
            return Problem(f"`{path}` has no values to search", where, text, f"write {_FORMS}")
    return Parameter(bounds=(low, high), log=read.log, step=read.step, whole=whole)


def _is_mapping(path: KeyPath) -> bool:
    """Return whether a key holds arguments, which nobody has declared, such as ``nn_config.policy``."""
    return field_at(path) is not None and "object" in _kinds(path)


def _kinds(path: KeyPath) -> set[object]:
    """Return the types that a key may have, as a JSON schema names them."""
    schema = schema_of(path)
    return {one.get("type") for one in schema.get("anyOf", [schema])}


def _fraction(read: _Entry) -> bool:
    """Return whether the numbers of an entry have fractions."""
    return any(number % 1 for number in (*(read.truncated or ()), read.step or 0))


def limits(config: Config, space: SearchSpace) -> Iterator[Problem]:
    """Yield what a study cannot do with this space and the limits of its runs."""
    tune, base = config.tune_config, config.base_config
    if not tune.params:
        example = (
            "tune_config:\n  params:\n    sac_config.learning_rate: {truncated: [1.0e-4, 1.0e-2], log: true}"
        )
        yield Problem("there is nothing to search", "tune_config.params", "it is empty", f"write\n{example}")
    endless = [path for path, parameter in space.items() if parameter.values is None]
    if tune.sampler == "grid" and endless:
        why = f"{', '.join(endless)} may have any number of an interval"
        fix = "add step: s, write {in: [...]}, or take another sampler"
        yield Problem("there is no grid", "tune_config.sampler", why, fix)
    if base.max_step <= 0 and base.max_iter <= 0:
        why = "max_step and max_iter are -1: its trials would never end"
        yield Problem("a study needs an end", "base_config", why, "set base_config.max_step")
    if tune.metric.startswith("eval/") and config.eval_config.per_step <= 0 and tune.pruning == "median":
        why = "evaluations on the way are switched off, and a pruner judges by them"
        fix = "set eval_config.per_step, or tune_config.pruner: none"
        yield Problem("no trial can be pruned", "eval_config.per_step", why, fix)
    if 0 < base.max_step <= (tune.prune_after or 0) and tune.pruning in ("median", "hyperband"):
        why = f"every trial gets {tune.prune_after:,} steps, and has {base.max_step:,}"
        fix = "lower tune_config.prune_after, or set pruner: none"
        yield Problem("no trial can be pruned", "tune_config.prune_after", why, fix)
