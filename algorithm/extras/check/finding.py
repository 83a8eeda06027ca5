"""The result of a check: findings, and functions that make them."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from algorithm.core.errors import EnvError, UserError, described

_TRACE_FRAMES = 8  # of an environment's traceback, the innermost
_NOT_ITS_OWN = (Path(gym.__file__).parent, Path(__file__).parents[2])


class Level(IntEnum):
    """Severity of a finding. Only an error prevents training."""

    OK = 0
    NOTE = 1
    WARNING = 2
    ERROR = 3

    @property
    def word(self) -> str:
        """The level in lower case, for messages."""
        return self.name.lower()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One observation about one checked property.

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
    """All findings of one check."""

    group: str
    title: str
    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        """The worst level of the findings."""
        return max((finding.level for finding in self.findings), default=Level.OK)


class FindingError(Exception):
    """Error of an environment that cannot continue; carries the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


def ok(what: str) -> Finding:
    """Return the finding that all is well."""
    return Finding(level=Level.OK, what=what)


def note(what: str, *, where: str = "", why: str = "", fix: str = "") -> Finding:
    """Return a finding that is worth knowing but needs no action."""
    return Finding(level=Level.NOTE, what=what, where=where, why=why, fix=fix)


def warning(what: str, *, where: str = "", why: str, fix: str) -> Finding:
    """Return the finding that training runs, but probably not as intended."""
    return Finding(level=Level.WARNING, what=what, where=where, why=why, fix=fix)


def error(what: str, *, where: str = "", why: str, fix: str, trace: str = "") -> Finding:
    """Return the finding that training would end, or learn something else."""
    return Finding(level=Level.ERROR, what=what, where=where, why=why, fix=fix, trace=trace)


def refusal(refused: UserError, trace: str = "") -> Finding:
    """Return the finding of an error that a training would raise too."""
    return Finding(
        level=Level.ERROR,
        what=refused.what,
        where=str(refused.where),
        why=refused.why,
        fix=refused.fix,
        trace=trace,
        code=refused.exit_code,
    )


def call_failed(call: str, where: str, failure: BaseException) -> Finding:
    """Return the finding of a call to the environment that raised; ``where``: seed, step and action."""
    return error(
        f"the environment fails in {call}",
        where=where,
        why=described(failure),
        fix="fix the environment; training tolerates base_config.env_restarts failures, then stops",
        trace=format_trace(failure),
    )


def format_trace(failure: BaseException | None) -> str:
    """Format the innermost frames of a traceback, without the project's and Gymnasium's; empty for None."""
    if failure is None:
        return ""
    stack = traceback.TracebackException.from_exception(failure).stack
    frames = [frame for frame in stack if not set(_NOT_ITS_OWN) & set(Path(frame.filename).parents)]
    text = [f"{at.filename}:{at.lineno} in {at.name}\n    {at.line}" for at in frames or stack]
    return "\n".join(text[-_TRACE_FRAMES:])


def format_values(values: Any, most: int = 6) -> str:  # noqa: ANN401 - anything array-like
    """Format ``[0.1, -2]``, with at most ``most`` numbers."""
    flat = np.asarray(values).ravel()
    more = ", …" if flat.size > most else ""
    return f"[{', '.join(f'{number:.4g}' for number in flat[:most].tolist())}{more}]"
