"""The algorithm families, a line each, by which the rest of the program finds them.

Their blocks of keys stand in ``config/schema.py``, their names for type checkers in ``app/env_arguments.py``.

A package has one family or several: a module ``family`` with ``FAMILIES``, imported for an agent, and two
optional modules without torch: ``config`` with ``contradictions(config)``, ``misplaced``, ``BARRED``,
``RESUME_RULES``, ``CLONES`` if demonstrated actions can be cloned, and ``MIXES`` if updates learn from
windows, which may be demonstrated ones; and ``metrics`` with ``METRICS`` and ``PANELS``.

Families named ``module:NAME`` are only a :class:`~algorithm.agents.base.Family`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from algorithm.core.plugins import Group, find

if TYPE_CHECKING:  # a configuration is read before numpy is loaded
    from algorithm.agents.base import Family
    from algorithm.core.console import Panel
    from algorithm.keys.behaviour import BehaviourConfig

FAMILIES: dict[str, str] = {
    "SAC": "algorithm.agents.sac",
    "PPO": "algorithm.agents.on_policy",
    "A2C": "algorithm.agents.on_policy",
    "A3C": "algorithm.agents.on_policy",
    "ACKTR": "algorithm.agents.on_policy",
    "ACER": "algorithm.agents.on_policy.acer",
    "TD3": "algorithm.agents.td3",
}
"""``algorithm`` of a configuration -> package."""
ALGORITHMS = Group("algorithm", "algorithm", built_in=tuple(FAMILIES))

_SHARED = ("algorithm.agents.off_policy", "algorithm.agents")
"""Packages with metrics that several families log."""


def family(config: BehaviourConfig) -> Family:
    """Return the family that a behaviour's configuration chooses by ``algorithm``.

    Raises UsageError if a module's family cannot be loaded, or is no Family; ModelError
    for unknown ``algorithm_args``.
    """
    from algorithm.agents.base import Family

    plugin = find(ALGORITHMS, config.algorithm)
    chosen: Family = (
        importlib.import_module(f"{FAMILIES[config.algorithm]}.family").FAMILIES[config.algorithm]
        if plugin is None
        else plugin.instance(Family)
    )
    chosen.keys_of(config)
    return chosen


def contradictions(config: BehaviourConfig) -> Iterator[Any]:
    """Yield the contradictions between the chosen family's keys and those of other blocks."""
    from algorithm.agents.imitation import rules  # with pydantic, which nobody needs to name families

    module = _config_of(config.algorithm)
    clones, mixes = (getattr(module, name, False) for name in ("CLONES", "MIXES"))
    yield from rules.contradictions(config, clones=clones, mixes=mixes)
    if module is not None:
        yield from module.contradictions(config)


def misplaced(algorithm: str, block: str, key: str) -> tuple[str, str] | None:
    """Return why a key of a block has no effect with ``algorithm``, and what to do; None if it has one."""
    for name, package in FAMILIES.items():
        module = _optional(package, "config")
        if name != algorithm and block == getattr(module, "BLOCKS", {}).get(name):
            return (
                f"{block} is for {name}, and algorithm is {algorithm}",
                f"set algorithm: {name}, or leave it out",
            )
    module = _config_of(algorithm)
    judge = getattr(module, "misplaced", None)
    return judge(algorithm, block, key) if judge else None


def barred(algorithm: str) -> Collection[str]:
    """Return the dotted keys of other families that must be off with ``algorithm``."""
    return getattr(_config_of(algorithm), "BARRED", ())


def resume_rule(algorithm: str, path: str) -> Callable[[Any, Any], str] | None:
    """Return a family's rule for a changed key on resume, which replaces the key's own; None without one.

    path: dotted key. The rule has the form of ``resume`` in :func:`algorithm.core.fields.option`.
    """
    module = _config_of(algorithm)
    rules: Mapping[str, Callable[[Any, Any], str]] = getattr(module, "RESUME_RULES", {})
    return rules.get(path)


def metrics() -> Mapping[str, str]:
    """Return the names that agents of any family may log, with their meaning."""
    return {name: text for module in _metrics() for name, text in module.METRICS.items()}


def panels() -> tuple[Panel, ...]:
    """Return the charts of all families for a report, which leaves out charts without data."""
    return tuple(chart for module in _metrics() for chart in module.PANELS)


def _metrics() -> list[ModuleType]:
    """Return the modules ``metrics`` of all packages of families, and of those that several share."""
    core, common = _SHARED
    packages = (core, *dict.fromkeys(FAMILIES.values()), common)
    modules = (_optional(package, "metrics") for package in packages)
    return [module for module in modules if module is not None]


def _config_of(algorithm: str) -> ModuleType | None:
    """Return the module ``config`` of a built-in family; None for a user's own."""
    return _optional(FAMILIES[algorithm], "config") if algorithm in FAMILIES else None


@cache
def _optional(package: str, name: str) -> ModuleType | None:
    """Import the module ``name`` of a package, and return it; None if the package has none."""
    full = f"{package}.{name}"
    return importlib.import_module(full) if find_spec(full) is not None else None
