"""Contradictions of ``reset_config`` on Unity, where it holds numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from algorithm.core.fields import Contradiction
from algorithm.env.parameters.config import KEY
from algorithm.env.parameters.rules import LARGEST
from algorithm.env.parameters.sampler_config import is_old_spelling, new_spelling


def wrong_numbers(reset_config: Mapping[str, Any] | None) -> Iterator[Contradiction]:
    """Yield the entries of ``reset_config`` that are no numbers of a Unity player."""
    for name, value in (reset_config or {}).items():
        path = (f"reset_config.{name}",)
        if not str(name).isascii():
            why = "its name has other characters than ASCII"
            yield Contradiction(path, why, "Unity cannot read them: rename it")
        elif is_old_spelling(value):
            why = "samplers stand in environment_parameters, spelt as ML-Agents does"
            yield Contradiction(path, why, f"write {KEY}: {{{name}: {new_spelling(value)}}}")
        elif not isinstance(value, int | float) or not abs(value) <= LARGEST:
            fix = f"give a number up to ±{LARGEST:.1e}; samplers and curricula stand in {KEY}"
            yield Contradiction(path, f"it is {value!r:.60}", fix)
