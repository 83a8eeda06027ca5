"""Configuration faults: what happened, where, why, what to do; all faults at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from typing_extensions import override

from algorithm.core.errors import explain

EXIT_CONFIG = 2
"""Exit code of every configuration fault."""


@dataclass(frozen=True)
class Problem:
    """A fault of a configuration, in the four texts of every error message."""

    what: str
    where: str
    why: str
    fix: str

    @override
    def __str__(self) -> str:
        return explain(self.what, where=self.where, why=self.why, fix=self.fix)


class ConfigError(Exception):
    """All faults of a configuration at once. ``str()`` is the message. The exit code is 2."""

    exit_code = EXIT_CONFIG

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(dict.fromkeys(problems))
        super().__init__(self.problems)

    @override
    def __str__(self) -> str:
        count = len(self.problems)
        head = f"configuration refused, {count} problem{'s' * (count != 1)}:"
        return "\n".join([head, *(f"{i}. {p}" for i, p in enumerate(self.problems, 1))])


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return the known name nearest to ``name``, or None if none is near."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return close[0] if close else None


def suggest(name: str, known: Iterable[str], noun: str) -> str:
    """Return a sentence with the nearest of ``known``, if one is near, and all of them."""
    known = sorted(known)
    close = did_you_mean(name, known)
    listed = f"{noun}: {', '.join(known)}" if known else f"there are no {noun}"
    return f"did you mean `{close}`? {listed}" if close else listed
