"""Records of a study's trials, and names of its files. Its imports are fast."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from algorithm.core.wording import counted, short

DATABASE = "study.db"
"""File of optuna, in the folder of a study."""

SNAPSHOT = "config.study.yaml"
"""File in the folder of a study: the configuration at its start, for all runs."""

RUN_SECTION = "study"
"""Name of the section in that file that the runs use."""

SIDES = ("tuned", "default")
"""Sides of the comparison on fresh seeds: the best trial's values, and the unchanged section."""

TrialState = Literal["running", "complete", "pruned", "failed"]


@dataclass(frozen=True)
class TrialRecord:
    """A trial in the database.

    number:  from 1, without trials that were killed while they were drawn
    values:  dotted path -> drawn value
    score:   value of the metric that counts, NaN before the end
    cost:    in processor seconds, NaN if unknown
    reports: step -> value of the metric; with several seeds number of the seed -> value of its run
    why:     reason of a failure
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
    """Number of runs of a study.

    seeds: of each trial
    final: runs on fresh seeds
    jobs:  runs at a time
    """

    trials: int
    seeds: int
    final: int
    jobs: int

    @property
    def runs(self) -> int:
        """Total number of runs."""
        return self.trials * self.seeds + self.final

    @property
    def text(self) -> str:
        """The numbers as a sentence."""
        each = f" of {counted(self.seeds, 'seed')}" if self.seeds > 1 else ""
        return (
            f"{counted(self.trials, 'trial')}{each} and {counted(self.final, 'run')} on fresh seeds are "
            f"{counted(self.runs, 'run')}, {self.jobs} at a time"
        )


def complete(trials: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Return the complete trials: neither running, pruned nor failed."""
    return [trial for trial in trials if trial.state == "complete"]


def best_of(trials: Iterable[TrialRecord], direction: str) -> TrialRecord | None:
    """Return the complete trial with the best score; direction: ``maximize`` or ``minimize``."""
    sign = 1 if direction == "maximize" else -1
    return max(complete(trials), key=lambda trial: sign * trial.score, default=None)


def shown(value: object) -> str:
    """Format a drawn value for tables and lines."""
    return short(value) if isinstance(value, float) else str(value)
