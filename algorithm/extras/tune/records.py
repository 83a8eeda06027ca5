"""Records of a study's trials, names of its files, and its verdict. Its imports are fast."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from algorithm.core.wording import counted, short
from algorithm.run.evaluation.statistics import mean_interval

DATABASE = "study.db"
"""File of optuna, in the folder of a study."""

SNAPSHOT = "config.study.yaml"
"""File in the folder of a study: the configuration at its start, for all runs."""

TRIALS = "trials.json"
"""File with the table of trials, written again after each of them."""

SECTION = "tuned.yaml"
"""The best values as a section, in the folder of a study."""

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
    reports: step -> value of the metric; empty with several seeds
    why:     reason of a failure
    """

    number: int
    values: Mapping[str, object]
    state: TrialState
    score: float = math.nan
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


def best_of(trials: Iterable[TrialRecord], direction: str) -> TrialRecord | None:
    """Return the complete trial with the best score; direction: ``maximize`` or ``minimize``."""
    sign = 1 if direction == "maximize" else -1
    complete = [trial for trial in trials if trial.state == "complete"]
    return max(complete, key=lambda trial: sign * trial.score, default=None)


def shown(value: object) -> str:
    """Format a drawn value for tables and lines."""
    return short(value) if isinstance(value, float) else str(value)


def verdict(final: Mapping[str, Sequence[float | None]], direction: str) -> str:
    """Return the conclusion from the values by fresh seed of each side; empty without two pairs of values.

    A run that failed has None. The interval is Student's, over the differences of pairs.
    """
    sign = 1 if direction == "maximize" else -1
    pairs = zip(final["tuned"], final["default"], strict=True)
    differences = [
        sign * (tuned - default) for tuned, default in pairs if tuned is not None and default is not None
    ]
    if len(differences) < 2:
        return ""
    interval = mean_interval(differences)
    low, high = interval.mean - interval.half_width, interval.mean + interval.half_width
    return f"{_conclusion(low, high)} Better by {short(interval.mean)} [{short(low)}, {short(high)}]."


def _conclusion(low: float, high: float) -> str:
    """Return the conclusion from the interval of what the tuned values gain over the default ones."""
    if low > 0:
        return "The tuned values are better on fresh seeds."
    if high < 0:
        return "The tuned values are worse on fresh seeds than the unchanged section: do not use them."
    return "On fresh seeds no difference is shown: the interval of the difference contains zero."
