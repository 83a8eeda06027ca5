"""Experiments: runs that differ only in their seeds, and summaries of their curves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from algorithm.app.report.curves import Series, series_of
from algorithm.app.report.facts import Facts
from algorithm.core.spec import DEFAULT_BEHAVIOUR

_REPEATED = re.compile(r"(?P<stem>.+)_(?:[2-9]|[1-9]\d+)")


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
    """Group runs by experiment: NAME, NAME_2, … of ``--repeat``, of which there has to be the first one."""
    groups: dict[str, list[Facts]] = {}
    for facts in runs:
        groups.setdefault(_repeated(facts) or facts.run.name, []).append(facts)
    return [Experiment(name, tuple(of)) for name, of in groups.items()]


def _repeated(facts: Facts) -> str | None:
    """Return the name of the first run of a ``--repeat``; None for any other run."""
    repeated = _REPEATED.fullmatch(facts.run.name)
    stem = repeated["stem"] if repeated else ""
    return stem if stem and (facts.run.path.parent / stem / "config.yaml").exists() else None


def behaviours_of(experiments: Sequence[Experiment]) -> list[str]:
    """Return the names of behaviours with metrics in any run; the default one if there are none."""
    runs = [facts for experiment in experiments for facts in experiment.runs]
    return list(dict.fromkeys(name for facts in runs for name in facts.metrics)) or [DEFAULT_BEHAVIOUR]
