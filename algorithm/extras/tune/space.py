"""The search space of a study: its parameters and their distributions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, Strict, ValidationError

from algorithm.agents.registry import misplaced
from algorithm.config.errors import ConfigError, Problem, did_you_mean
from algorithm.config.loader import LoadedConfig
from algorithm.config.resolve import SEED_PATH
from algorithm.config.schema import Config, field_at, fields
from algorithm.config.tree import KeyPath, from_value_at, to_value
from algorithm.config.validation import expected, schema_of
from algorithm.config.yaml_io import inline
from algorithm.core.fields import Block, Finite, Positive
from algorithm.store.logs.registry import METRICS, RECORDED

if TYPE_CHECKING:  # it takes a second to import
    from optuna.distributions import BaseDistribution

_FORMS = "{in: [...]} or {truncated: [lo, hi]}, the latter with log: true or step: s"
_EXAMPLE = "sac_config.learning_rate: {truncated: [1.0e-4, 1.0e-2], log: true}"
_FIXED = ("tune_config", "eval_config", "base_config.name", "base_config.max_step", ".".join(SEED_PATH))
"""Keys and blocks that cannot be searched: the study sets them, or all runs share them."""


class _Entry(Block):
    """An entry of ``tune_config.params``, as in the file."""

    choices: Annotated[tuple[Any, ...], Strict(False), Field(min_length=1)] | None = Field(None, alias="in")
    truncated: Annotated[tuple[Finite, Finite], Strict(False)] | None = None
    log: bool = False
    step: Positive | None = None


@dataclass(frozen=True)
class SearchSpace:
    """Search space of a study.

    distributions: dotted path -> optuna's distribution; choices are in it as texts
    labels:        dotted path -> text -> choice
    """

    distributions: Mapping[str, BaseDistribution]
    labels: Mapping[str, Mapping[str, object]]


def read_space(params: Mapping[str, Any]) -> SearchSpace:
    """Return the space that ``tune_config.params`` describes. Raises ConfigError with every fault."""
    read = {path: _parameter(path, entry) for path, entry in params.items()}
    problems = [each for each in read.values() if isinstance(each, Problem)]
    if problems:
        raise ConfigError(problems)
    return SearchSpace(
        {path: each for path, each in read.items() if not isinstance(each, Problem)},
        {path: {inline(choice): choice for choice in params[path].get("in") or ()} for path in params},
    )


def _parameter(path: str, entry: Any) -> BaseDistribution | Problem:  # noqa: ANN401 - as it was written
    """Return the distribution of a parameter, or the problem of its entry."""
    where, key = f"tune_config.params.{path}", tuple(path.split("."))
    if any(path == fixed or path.startswith(f"{fixed}.") for fixed in _FIXED):
        return Problem(
            f"`{path}` cannot be searched", where, "it is the same for all runs of a study", "leave it out"
        )
    block = key[:-1]  # perhaps a mapping of undeclared arguments, such as nn_config.policy
    if not (field_at(key) or (field_at(block) and "object" in _kinds(block))):
        close = did_you_mean(path, [".".join(known) for known, _ in fields()])
        fix = f"did you mean `{close}`?" if close else "write its whole path: sac_config.learning_rate"
        return Problem(f"`{path}` cannot be searched", where, "there is no such key", fix)
    try:
        read = _Entry.model_validate(entry)
        values = read.choices or read.truncated
        why = (
            ""
            if values and not (read.choices and (read.truncated or read.log or read.step))
            else "one distribution"
        )
    except ValidationError:
        why = "a distribution"
    if why:
        return Problem(f"`{path}` needs {why}", where, f"it is {inline(entry)}", f"write {_FORMS}")
    wrong = [value for value in values or () if field_at(key) and not _is_valid(key, value)]
    if wrong:
        what = f"`{path}` cannot be {inline(wrong[0])}"
        return Problem(what, where, f"it must be {expected(key)}", "search other values")
    if read.choices:
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution([inline(choice) for choice in read.choices])
    whole = all(isinstance(end, int) for end in entry["truncated"]) and (read.step or 1) % 1 == 0
    return _numbers(path, read, _kinds(key) if field_at(key) else {"integer" if whole else "number"})


def _is_valid(key: KeyPath, value: object) -> bool:
    """Return whether a key accepts a value by itself; combinations are checked at each draw."""
    try:
        Config.model_validate(to_value(from_value_at(key, value, "")))
    except ValidationError:
        return False
    return True


def _numbers(path: str, read: _Entry, kinds: set[object]) -> BaseDistribution | Problem:
    """Return the distribution of numbers, or its problem; kinds: types of a JSON schema."""
    from optuna.distributions import FloatDistribution, IntDistribution

    assert read.truncated is not None
    where = f"tune_config.params.{path}"
    if not kinds & {"number", "integer"}:
        return Problem(f"`{path}` is not numeric", where, "it has no interval", "write {in: [...]}")
    (low, high), step = read.truncated, read.step
    if step is not None:  # the last of the steps is the end
        high = float(f"{low + step * math.floor((high - low) / step + 1e-9):.12g}")
    try:
        if not low < high:
            raise ValueError("the interval has one value")
        if "number" in kinds:
            return FloatDistribution(low, high, log=read.log, step=step)
        if (step or 1) % 1:
            raise ValueError("the step must be a whole number, as the key is")
        return IntDistribution(math.ceil(low), math.floor(high), log=read.log, step=int(step or 1))
    except ValueError as error:
        return Problem(f"`{path}` has no values to search", where, str(error), f"write {_FORMS}")


def _kinds(path: KeyPath) -> set[object]:
    """Return the types that a key accepts, as a JSON schema names them."""
    schema = schema_of(path)
    return {option.get("type") for option in schema.get("anyOf", [schema])}


def limits(loaded: LoadedConfig, space: SearchSpace) -> Iterator[Problem]:
    """Yield the problems of a study with this space and configuration."""
    rules = (*_of_end(loaded), *_of_pruning(loaded))
    yield from (Problem(*text) for holds, *text in rules if holds)
    yield from _idle(loaded, space)


StudyRule = tuple[bool, str, str, str, str]
"""A problem of a study: whether it exists, and its texts."""


def _of_end(loaded: LoadedConfig) -> tuple[StudyRule, ...]:
    """Return the rules on space, metric and end of a study."""
    tune, base = loaded.config.tune_config, loaded.config.base_config
    close = did_you_mean(tune.metric, METRICS) or "eval/return_mean"
    return (
        (
            not tune.params,
            "there is nothing to search",
            "tune_config.params",
            "it is empty",
            f"write\ntune_config:\n  params:\n    {_EXAMPLE}",
        ),
        (
            base.max_step <= 0 and base.max_iter <= 0,
            "a study needs an end",
            "base_config",
            "max_step and max_iter are -1: its trials would never end",
            "set base_config.max_step",
        ),
        (
            tune.metric not in METRICS and not tune.metric.startswith(RECORDED),
            f"no run writes `{tune.metric}`",
            "tune_config.metric",
            "it is not a metric",
            f"did you mean `{close}`? docs/metrics.md lists all",
        ),
    )


def _of_pruning(loaded: LoadedConfig) -> tuple[StudyRule, ...]:
    """Return the rules on pruning."""
    config, tune, base = loaded.config, loaded.config.tune_config, loaded.config.base_config
    return (
        (
            tune.prunes and tune.metric.startswith("eval/") and not config.evaluates_on_the_way,
            "no trial can be pruned",
            "eval_config",
            "evaluations during training are switched off, and a pruner needs them",
            "set eval_config.per_step and episodes, or tune_config.pruner: none",
        ),
        (
            tune.prunes and 0 < base.max_step <= (tune.prune_after or 0),
            "no trial can be pruned",
            "tune_config.prune_after",
            f"no trial is pruned before step {tune.prune_after}, and trials end at {base.max_step}",
            "lower tune_config.prune_after, or set pruner: none",
        ),
    )


def _idle(loaded: LoadedConfig, space: SearchSpace) -> Iterator[Problem]:
    """Yield a problem for each parameter without an effect."""
    algorithms = [*space.labels.get("algorithm", ())] or [loaded.config.algorithm]
    for path in space.distributions:
        reasons = [without_effect(path, algorithm) for algorithm in algorithms]
        why = "" if None in reasons else f"with {', '.join(algorithms)}: {reasons[0]}"
        if path in loaded.drawn:
            why = "random_params draws it in every run"
        if why:
            where = f"tune_config.params.{path}"
            yield Problem(f"`{path}` has no effect", where, why, "leave one of them out")


def without_effect(path: str, algorithm: str) -> str | None:
    """Return why a key has no effect with an algorithm; None if it has one."""
    block, _, key = path.partition(".")
    fault = misplaced(algorithm, block, key) if key else None
    return fault[0] if fault else None
