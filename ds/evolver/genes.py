"""Genes of a population: the keys under ``random_params`` that a resumed run may change."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from random import Random
from typing import Any, NamedTuple

from algorithm.config import Config, ConfigError, LoadedConfig, Problem
from algorithm.config.random_params import Distribution
from algorithm.config.resolve import build
from algorithm.config.resume_rules import effect_of
from algorithm.config.schema import BEHAVIOUR_KEYS, field_at, fields
from algorithm.config.tree import from_value, from_value_at, merge
from algorithm.config.yaml_io import inline
from algorithm.core.fields import facts_of

_EXAMPLES = 8
"""Number of draws of a distribution that is no list; a gene may change from each of them to each."""
_OWN = "evolver_"  # keys of the population itself


class Genes:
    """Keys that evolve, and what their values are drawn from at first.

    distributions: dotted path, as in :attr:`LoadedConfig.drawn`, → its distribution
    configured:    values of all of them that are known to load
    Raises ConfigError for a key that cannot change from one generation to the next.
    """

    def __init__(self, loaded: LoadedConfig) -> None:
        self._loaded = loaded
        self.distributions: Mapping[str, Distribution] = loaded.distributions
        self.configured: Mapping[str, Any] = loaded.drawn
        problems = [
            Problem(
                f"`{path}` cannot evolve",
                f"random_params of {loaded.source}",
                why,
                f"remove it from random_params; keys of {_place(path).block} that can evolve: "
                + ", ".join(_evolvable(_place(path).block)),
            )
            for path, distribution in self.distributions.items()
            if (why := self._objection(path, distribution))
        ]
        if problems:
            raise ConfigError(problems)

    def accepts(self, values: Mapping[str, Any]) -> bool:
        """Return whether a member's configuration with these genes is valid, in each of its behaviours."""
        problems: list[Problem] = []
        for behaviour in ("", *self._loaded.behaviours):
            tree = from_value(self._config(behaviour).model_dump(exclude_unset=True), "")
            for path, value in values.items():
                place = _place(path)
                shared = not place.behaviour and place.block not in BEHAVIOUR_KEYS
                if shared or place.behaviour == behaviour:
                    tree = merge(tree, from_value_at(place[1:], value, ""))
            build(tree, problems)
        return not problems

    def overrides(self, values: Mapping[str, Any]) -> list[str]:
        """Return overrides that set a member's genes, an ``-o`` each; with them it draws none itself."""
        drawing = {(place.behaviour, place.block) for place in map(_place, self.distributions)}
        words = [_override((*pair, "random_params"), None) for pair in sorted(drawing)]
        return words + [_override(_place(path), value) for path, value in values.items()]

    def _config(self, behaviour: str) -> Config:
        return self._loaded.behaviours[behaviour] if behaviour else self._loaded.config

    def _objection(self, path: str, distribution: Distribution) -> str | None:
        """Return why a resumed member could not take another value of a key; None if it could."""
        behaviour, block, key = _place(path)
        field, config = field_at((block, key)), self._config(behaviour)
        assert field is not None, f"{path} was drawn, and is not a key"
        if key.startswith(_OWN):
            return "it belongs to the population, not to a member"
        samples = (distribution.sample(Random(example)) for example in range(_EXAMPLES))
        values = list(distribution.choices) or list(samples)
        for before, after in [(values[0], values[0]), *permutations(values, 2)]:
            effect = effect_of(field, _with(config, block, key, before), _with(config, block, key, after))
            if effect is None:
                return "the population names the folders of its members"
            if effect.refused:
                return f"each generation resumes its members: {effect.note}"
        return None


class _Place(NamedTuple):
    behaviour: str  # that ma_config names, or empty
    block: str
    key: str


def _place(path: str) -> _Place:
    """Split a dotted path; the name of a behaviour may have dots itself."""
    *before, block, key = path.split(".")
    return _Place(".".join(before[1:]), block, key)


def _with(config: Config, block: str, key: str, value: object) -> Config:
    inner = getattr(config, block).model_copy(update={key: value})
    return config.model_copy(update={block: inner})


def _evolvable(block: str) -> list[str]:
    """Return the keys directly in a block that any resume may change, without those of the population."""
    return [
        path[1]
        for path, field in fields()
        if path[0] == block
        and len(path) == 2
        and str(facts_of(field).resume).partition(":")[0] == "free"
        and not path[1].startswith(_OWN)
    ]


def _override(place: tuple[str, str, str], value: object) -> str:
    behaviour, *path = place
    if not behaviour:
        return f"{'.'.join(path)}={inline(value)}"
    if set(behaviour) & set(".=") or behaviour != behaviour.strip():  # a dotted path could not name it
        return f"ma_config={inline({behaviour: {path[0]: {path[1]: value}}})}"
    return f"ma_config.{behaviour}.{'.'.join(path)}={inline(value)}"
