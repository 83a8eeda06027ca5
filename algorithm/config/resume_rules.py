"""Effects of settings that differ from those a run was trained with, when it is resumed.

Each key declares its own effect (``resume`` of :func:`algorithm.core.fields.option`): refused, because what
was learned or stored would not fit, or applied from the resume on.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pydantic.fields import FieldInfo
from typing_extensions import override

from algorithm.agents.registry import misplaced, resume_rule
from algorithm.config.errors import ConfigError, Problem
from algorithm.config.loader import LoadedConfig
from algorithm.config.schema import BEHAVIOUR_KEYS, Config, fields, value_at
from algorithm.config.yaml_io import inline
from algorithm.core.fields import facts_of


class Effect(NamedTuple):
    """Effect of another value on a resumed run.

    refused: the run cannot be resumed with it; else it applies from the resume on
    note: reason of a refusal, or further consequences
    """

    refused: bool
    note: str = ""

    @override
    def __str__(self) -> str:
        """Return the effect in words."""
        verb = "refused" if self.refused else "applied"
        return f"{verb}: {self.note}" if self.note else verb


@dataclass(frozen=True)
class Change:
    """A key with another value; that of a behaviour has a path below ``ma_config.<behaviour>.``."""

    path: str
    before: object
    after: object
    effect: Effect


def changes(old: LoadedConfig, new: LoadedConfig) -> list[Change]:
    """Return the changed keys: first common ones in the order of the listing, then those of behaviours.

    old: configuration that the run was trained with; new: configuration to resume it with
    """
    common = list(_compared(old.config, new.config, Config.model_fields))
    all_changes = list(common)
    for name in dict.fromkeys((*old.behaviours, *new.behaviours)):
        of_behaviour = _compared(old.for_behaviour(name), new.for_behaviour(name), BEHAVIOUR_KEYS)
        all_changes += [
            replace(change, path=f"ma_config.{name}.{change.path}")
            for change in of_behaviour
            if change not in common
        ]
    return all_changes


def refuse(changed: Sequence[Change]) -> None:
    """Raise ConfigError with every change that is refused; do nothing if there is none.

    Another algorithm is reported alone, since it makes all other changes pointless.
    """
    others = [change for change in changed if change.path.rpartition(".")[2] == "algorithm"]
    problems = [
        Problem(
            f"`{change.path}` cannot change when a run is resumed",
            f"it was {_shown(change.before)} and is now {_shown(change.after)}",
            change.effect.note,
            f"leave it: {shlex.quote(f'{change.path}={_shown(change.before)}')}\n"
            "or train a new run, under another name",
        )
        for change in others or changed
        if change.effect.refused
    ]
    if problems:
        raise ConfigError(problems)


def table(changed: Sequence[Change]) -> list[tuple[str, str]]:
    """Return the changes as rows of a table: key; its values before and now, and the effect."""
    return [(c.path, f"{_shown(c.before)} → {_shown(c.after)}, {c.effect}") for c in changed]


def effect_of(field: FieldInfo, old: Config, new: Config, path: str = "") -> Effect | None:
    """Return the effect of another value, by the key's declaration; None if it is not compared.

    path: of the key, about which the family may have a rule of its own
    """
    rule = resume_rule(new.algorithm, path) or facts_of(field).resume
    kind, _, note = (rule if isinstance(rule, str) else rule(old, new)).partition(": ")
    return None if kind == "ignored" else Effect({"free": False, "fixed": True}[kind], note)


def _compared(old: Config, new: Config, chosen: Collection[str]) -> Iterator[Change]:
    """Yield the changes of the blocks and keys ``chosen`` at the top level."""
    for path, field in fields():
        before, after, name = value_at(old, path), value_at(new, path), ".".join(path)
        if path[0] not in chosen or before == after:
            continue
        if path[1:] and misplaced(new.algorithm, path[0], path[1]):
            continue  # the key has no effect
        effect = effect_of(field, old, new, name)
        if effect is not None:
            yield Change(name, before, after, effect)


def _shown(value: object) -> str:
    """Return a value as YAML on one line."""
    return inline(list(value) if isinstance(value, tuple) else value)
