"""Findings of checks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from algorithm.core.errors import EnvError, UserError


class Level(IntEnum):
    """Severity. Only an error prevents training."""

    OK = 0
    NOTE = 1
    WARNING = 2
    ERROR = 3

    @property
    def word(self) -> str:
        """Name for messages."""
        return self.name.lower()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One sentence on one checked thing.

    what:  the observation, one line
    where: part, step and seed
    why:   why it matters
    fix:   what to do
    trace: the environment's own traceback, if any
    code:  exit code of a training that this error ends
    """

    level: Level
    what: str
    where: str = ""
    why: str = ""
    fix: str = ""
    trace: str = ""
    code: int = EnvError.exit_code


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """All findings of one check; none where it has only begun."""

    group: str
    title: str
    findings: tuple[Finding, ...] = ()

    @property
    def level(self) -> Level:
        """The worst level."""
        return max((finding.level for finding in self.findings), default=Level.OK)


class FindingError(Exception):
    """The environment cannot continue; carries the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)  # so that it can be pickled
        self.finding = finding


def ok(what: str) -> Finding:
    """Report that all is well."""
    return Finding(level=Level.OK, what=what)


def note(what: str, *, where: str = "", why: str = "", fix: str = "") -> Finding:
    """Report something worth knowing."""
    return Finding(level=Level.NOTE, what=what, where=where, why=why, fix=fix)


def warning(what: str, *, where: str = "", why: str, fix: str) -> Finding:
    """Report that training runs, but probably not as intended."""
    return Finding(level=Level.WARNING, what=what, where=where, why=why, fix=fix)


def error(what: str, *, where: str = "", why: str, fix: str, trace: str = "") -> Finding:
    """Report that training would end, or learn something else."""
    return Finding(level=Level.ERROR, what=what, where=where, why=why, fix=fix, trace=trace)


def refusal(refused: UserError, trace: str = "") -> Finding:
    """Report the error that a training would raise itself."""
    return Finding(
        level=Level.ERROR,
        what=refused.what,
        where=str(refused.where),
        why=refused.why,
        fix=refused.fix,
        trace=trace,
        code=refused.exit_code,
    )
