"""The algorithm families, one line each: the only file outside of a family that names one."""

from __future__ import annotations

import importlib

from algorithm.roles import BehaviourConfig, Family

FAMILIES: dict[str, str] = {
    "SAC": "algorithm.sac.family",
}
"""``algorithm`` of a configuration -> the module of its ``FAMILY``, imported where it is used."""


def family(config: BehaviourConfig) -> Family:
    """Return the family that a behaviour's configuration chooses."""
    found: Family = importlib.import_module(FAMILIES[getattr(config, "algorithm", "SAC")]).FAMILY
    return found
