"""Records of the trials of a study, and the names of its files. Imports nothing that is slow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from algorithm.core.wording import counted, short

DATABASE = "study.db"
"""File of optuna, in the folder of a study."""

SNAPSHOT = "config.study.yaml"
"""File in the folder of a study: the section as it was at its start, for all runs."""

RUN_SECTION = "study"
"""Section in that file which the runs have."""

SIDES = ("tuned", "default")
"""Names of the runs on fresh seeds: the best trial's values, and the section as it is."""

TrialState = Literal["running", "complete", "pruned", "failed"]


@dataclass(frozen=True)
class TrialRecord:
    """One trial as the database has it.

    number:  from 1; a trial that was killed while it was asked has none, and is asked anew
    values:  drawn, dotted path -> value
    reports: step -> value of the metric, with several seeds number of the seed -> value of its run
    score:   what counts; cost: in processor seconds; NaN where they are not known
    why:     it failed
    """

    number: int
    values: Mapping[str, object]
    state: TrialState
    score: float = math.nan
    cost: float = math.nan
    reports: Mapping[int, float] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class StudySize:
    """Number of runs of a study: trials of some seeds, those on fresh seeds, and how many at a time."""

    trials: int
    seeds: int
    final: int
    jobs: int

    @property
    def runs(self) -> int:
        """Runs in all."""
        return self.trials * self.seeds + self.final

    @property
    def text(self) -> str:
        """The numbers in words."""
        each = f" of {counted(self.seeds, 'seed')}" if self.seeds > 1 else ""
        return (
            f"{counted(self.trials, 'trial')}{each} and {counted(self.final, 'run')} on fresh seeds are "
            f"{counted(self.runs, 'run')}, {self.jobs} at a time"
        )


def complete(trials: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Return the trials that have come to their end."""
    return [one for one in trials if one.state == "complete"]


def best_of(trials: Iterable[TrialRecord], direction: str) -> TrialRecord | None:
    """Return the best complete trial; None without one."""
    sign = 1 if direction == "maximize" else -1
    return max(complete(trials), key=lambda one: sign * one.score, default=None)


def shown(value: object) -> str:
    """Format a drawn value."""
    return short(value) if isinstance(value, float) else str(value)
