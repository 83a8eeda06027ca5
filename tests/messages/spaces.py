"""Sections by what the spaces are: rows of a start screen, and the refusal of one that does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import yaml

from algorithm.app.report.settings import config_rows
from algorithm.config import by_spaces, load_config
from algorithm.config.tree import from_value
from algorithm.core.spec import AgentSpec
from tests.config.test_by_spaces import CONTRADICTING, HYBRID, NUMBERS, RUNNER, SECTIONS, SEEN, WALKER

ROWS = [
    ({"default": AgentSpec(SEEN, NUMBERS)}, ["sac_config.n_step=5"], ()),
    ({"Runner": AgentSpec(SEEN, HYBRID), "Walker": WALKER}, [], ()),
    ({"default": RUNNER}, [], ("ModelQ",)),
    *(({"default": RUNNER}, overrides, ()) for overrides in CONTRADICTING),
]


def messages() -> Iterator[tuple[str, str]]:
    tree = from_value(yaml.safe_load(SECTIONS), "shipped")
    with patch.object(by_spaces, "shipped", lambda: tree):
        for specs, overrides, own in ROWS:
            loaded = load_config("Pendulum-v1", overrides=overrides, seed=1)
            loaded = by_spaces.for_spaces(loaded, specs, lambda _, own=own: own)  # type: ignore[misc]
            rows = [
                f"{name} {value}"
                for name, value in config_rows(loaded)
                if name == "section" or value.endswith(")")
            ]
            yield f"{', '.join(specs)} {' '.join((*overrides, *own))}".rstrip(), "\n".join(rows)
    without = by_spaces.for_spaces(load_config("CartPole-v1", seed=1), {"default": WALKER}, lambda _: ())
    yield "no such section ships", dict(config_rows(without))["section"]
