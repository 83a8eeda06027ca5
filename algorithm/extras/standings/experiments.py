"""Experiments: runs that differ only in their seeds, and summaries of their curves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from algorithm.app.report.curves import Series, series_of
from algorithm.app.report.facts import Facts
from algorithm.app.report.settings import differences
from algorithm.core.data import Double
from algorithm.core.spec import DEFAULT_BEHAVIOUR

_REPEATED = re.compile(r"(?P<stem>.+)_(?:[2-9]|[1-9]\d+)")
_NUMBERED = re.compile(r"(?P<stem>.+)[-_]\d+")


@dataclass(frozen=True)
class Experiment:
    """Runs with different seeds and otherwise equal configuration, in the order of the command line."""

    name: str
    runs: tuple[Facts, ...]

    def series(self, behaviour: str) -> list[Series]:
        """Return the curves of the runs that were evaluated in a behaviour."""
        columns = [facts.metrics[behaviour] for facts in self.runs if behaviour in facts.metrics]
        curves = [series_of(each, self.name) for each in columns]
        return [curve for curve in curves if len(curve.eval_step)]


def grouped(runs: Sequence[Facts]) -> list[Experiment]:
    """Group runs by experiment: NAME, NAME_2, … of ``--repeat``, or NAME-1, NAME-2, … of one configuration.

    A number counts as one of ``--repeat`` only if there is a run without it. Without one, runs whose names
    differ in their last number are one experiment if their configurations differ in nothing but the seed.
    """
    names = [_repeated(facts) or facts.run.name for facts in runs]
    numbered: dict[str, list[Facts]] = {}
    for name, facts in zip(names, runs, strict=True):
        match = _NUMBERED.fullmatch(name)
        if match and match["stem"] not in names and names.count(name) == 1:
            numbered.setdefault(match["stem"], []).append(facts)
    stems = {
        facts.run.name: stem for stem, of in numbered.items() if _of_one_configuration(of) for facts in of
    }
    groups: dict[str, list[Facts]] = {}
    for name, facts in zip(names, runs, strict=True):
        groups.setdefault(stems.get(name, name), []).append(facts)
    return [Experiment(name, tuple(of)) for name, of in groups.items()]


def _repeated(facts: Facts) -> str | None:
    """Return the name of the first run of a ``--repeat``; None for any other run."""
    repeated = _REPEATED.fullmatch(facts.run.name)
    stem = repeated["stem"] if repeated else ""
    return stem if stem and (facts.run.path.parent / stem / "config.yaml").exists() else None


def _of_one_configuration(runs: Sequence[Facts]) -> bool:
    """Return whether these are several runs that differ only in their seeds."""
    if len(runs) == 1 or any(facts.config is None for facts in runs):
        return False
    changed = differences([facts.config for facts in runs])
    return all(len(set(values[:-1])) == 1 for values in changed.values())


def behaviours_of(experiments: Sequence[Experiment]) -> list[str]:
    """Return the names of behaviours with metrics in any run; the default one if there are none."""
    runs = [facts for experiment in experiments for facts in experiment.runs]
    return list(dict.fromkeys(name for facts in runs for name in facts.metrics)) or [DEFAULT_BEHAVIOUR]


def mean_over(steps: Double, values: Double, low: float, high: float) -> float:
    """Return the mean height of a curve [P] between two steps: its area divided by their distance."""
    inside = np.unique(np.concatenate([[low, high], steps[(steps > low) & (steps < high)]]))
    heights = np.interp(inside, steps, values)
    return float(np.trapezoid(heights, inside) / (high - low)) if high > low else float(heights[0])
