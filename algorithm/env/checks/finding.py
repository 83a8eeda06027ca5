"""What a check has to say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from algorithm.errors import UserError


class Level(IntEnum):
    """How bad it is. Only an error keeps a training from working."""

    OK = 0
    NOTE = 1
    WARNING = 2
    ERROR = 3

    @property
    def word(self) -> str:
        """As a person reads it."""
        return self.name.lower()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One sentence on one thing that was looked at.

    what:  what was seen, one line
    where: which part, step, seed it was seen at
    why:   why it matters
    fix:   what to do
    trace: the environment's own traceback, where there is one
    """

    level: Level
    what: str
    where: str = ""
    why: str = ""
    fix: str = ""
    trace: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """All that one check found."""

    group: str
    title: str
    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        """The worst of it."""
        return max((finding.level for finding in self.findings), default=Level.OK)


class FindingError(Exception):
    """The environment cannot go on: carries the finding that says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


def plural(n: int, noun: str) -> str:
    """``1 step``, ``2,000 steps``."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def ok(what: str) -> Finding:
    """All is well."""
    return Finding(level=Level.OK, what=what)


def note(what: str, *, where: str = "", why: str = "", fix: str = "") -> Finding:
    """Worth knowing."""
    return Finding(level=Level.NOTE, what=what, where=where, why=why, fix=fix)


def warning(what: str, *, where: str = "", why: str, fix: str) -> Finding:
    """Training goes on, but hardly as it was meant."""
    return Finding(level=Level.WARNING, what=what, where=where, why=why, fix=fix)


def error(what: str, *, where: str = "", why: str, fix: str, trace: str = "") -> Finding:
    """Training would end, or learn something else."""
    return Finding(level=Level.ERROR, what=what, where=where, why=why, fix=fix, trace=trace)


def refusal(refused: UserError, trace: str = "") -> Finding:
    """What training would say itself."""
    return error(refused.what, where=refused.where, why=refused.why, fix=refused.fix, trace=trace)
