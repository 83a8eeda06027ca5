"""``report.html`` of a study: trials, importances, best values on fresh seeds. Loads no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from algorithm.app.report.charts import Chart, Line
from algorithm.app.report.page import FolderPage, Section, Tile, link_to_page
from algorithm.config.errors import ConfigError
from algorithm.config.extras_config import TuneConfig
from algorithm.core.errors import StorageError, described
from algorithm.core.reading import read_json
from algorithm.core.wording import counted, short
from algorithm.extras.standings.aggregates import Estimate, estimate
from algorithm.extras.tune.records import SIDES, TrialRecord, best_of, complete, shown
from algorithm.extras.tune.space import SearchSpace, read_space
from algorithm.store.names import STUDY
from algorithm.store.rundir import RunDir

TRIALS = "trials.json"
"""File with the table of trials, which the study writes again after each trial."""

_MOST_ROWS, _MOST_LINES = 40, 60
_FEWEST = 4  # pairs of fresh seeds that a verdict needs
_VERDICTS = {
    1: "The tuned values are better on fresh seeds.",
    0: "On fresh seeds no difference is shown: the interval of the difference contains zero.",
    -1: "The tuned values are worse on fresh seeds than the unchanged section: do not use them.",
}


@dataclass(frozen=True)
class StudyFacts:
    """A study, as its files describe it.

    begun: settings at its start, from ``study.json``
    final: side (``tuned``, ``default``) -> value by fresh seed, None for a run that failed
    """

    folder: RunDir
    begun: Mapping[str, Any]
    tune: TuneConfig
    space: SearchSpace
    trials: Sequence[TrialRecord]
    importances: Mapping[str, float]
    final: Mapping[str, Sequence[float | None]]

    @property
    def sign(self) -> float:
        """1 if larger values are better, else -1."""
        return 1.0 if self.tune.direction == "maximize" else -1.0

    @property
    def best(self) -> TrialRecord | None:
        """The best complete trial; None without one."""
        return best_of(self.trials, self.tune.direction)

    @property
    def better_by(self) -> Estimate | None:
        """Mean over fresh seeds of tuned minus default, [1], with a bootstrap interval; positive is better.

        None if fewer than four seeds have both: the interval would be too narrow.
        """
        pairs = zip(*(self.final.get(side, ()) for side in SIDES), strict=True)
        differences = [self.sign * (ours - theirs) for ours, theirs in pairs if None not in (ours, theirs)]
        return mean_of(differences) if len(differences) >= _FEWEST else None

    @property
    def verdict(self) -> str:
        """Conclusion from the fresh seeds as a sentence; empty without them."""
        difference = self.better_by
        if difference is None:
            return (
                f"Fewer than {_FEWEST} pairs of fresh seeds are too few for a verdict." if self.final else ""
            )
        value, low, high = (float(end[0]) for end in (difference.value, difference.low, difference.high))
        text = _VERDICTS[1 if low > 0 else -1 if high < 0 else 0]
        return f"{text} Better by {short(value)} [{short(low)}, {short(high)}]."

    @property
    def cheapest(self) -> TrialRecord | None:
        """The cheapest trial whose score is within, or above, the best trial's interval on fresh seeds."""
        best, values = self.best, [value for value in self.final.get("tuned", ()) if value is not None]
        if self.tune.cost is None or best is None or not values:
            return None
        low = float(mean_of([self.sign * value for value in values]).low[0])
        as_good = [trial for trial in complete(self.trials) if self.sign * trial.score >= low]
        return min(as_good, key=lambda trial: trial.cost, default=None)


def mean_of(values: Sequence[float]) -> Estimate:
    """Return the mean of values, one a seed, with its 95 % bootstrap interval, [1]."""
    return estimate([np.array(values)[:, None]], lambda drawn: np.mean(drawn, axis=-1))


def read_facts(folder: RunDir) -> StudyFacts:
    """Return the facts of a study, which may still run. Raises StorageError for damaged files."""
    try:
        return _read_facts(folder)
    except (LookupError, TypeError, ValueError, AttributeError, ConfigError) as error:
        fix = "restore a copy of them; the database and the runs of the trials are not affected"
        raise StorageError(
            "the files of a study are damaged", where=folder.path, why=described(error), fix=fix
        ) from error


def _read_facts(folder: RunDir) -> StudyFacts:
    file = read_json(folder.path / STUDY)
    begun = {name: file[name] for name in ("seed", "section", "algorithm", "given", "device", "tune")}
    tune = TuneConfig.model_validate(begun["tune"], strict=False)
    table = folder.path / TRIALS
    read = read_json(table) if table.exists() else {"trials": [], "importances": {}}
    trials = [_record(row) for row in read["trials"]]
    best = best_of(trials, tune.direction)
    result = read_json(folder.result) if folder.result.exists() else {}
    final = result["final"] if best and result.get("trial") == best.number else {}
    return StudyFacts(folder, begun, tune, read_space(tune.params), trials, read["importances"], final)


def _record(read: Mapping[str, Any]) -> TrialRecord:
    reports = {int(step): value for step, value in read["reports"].items()}
    numbers = {name: math.nan if read[name] is None else read[name] for name in ("score", "cost")}
    return TrialRecord(**{**read, **numbers, "reports": reports})


def write_study(folder: RunDir) -> StudyFacts:
    """Write the page about a study into its folder; return the facts on it. Raises StorageError."""
    facts = read_facts(folder)
    searched = counted(len(facts.space), "parameter")
    FolderPage(
        folder=folder,
        subtitle=f"study of {searched}, {facts.tune.sampler}, {facts.tune.metric}",
        sections=[*_fresh(facts), *_charts(facts), *_importance(facts), *_tables(facts)],
        commands=[
            ("Print the best values as a section", folder.command("--tune", folder.name, "--export_best")),
            ("Continue the study", folder.command("--tune", folder.name, "--resume")),
        ],
        tiles=_tiles(facts),
    ).write()
    return facts


def _tiles(facts: StudyFacts) -> list[Tile]:
    best, difference, states = facts.best, facts.better_by, [trial.state for trial in facts.trials]
    counts = f"{states.count('pruned')} pruned, {states.count('failed')} failed"
    tiles = [Tile("trials", f"{len(states)} of {facts.tune.trials}", counts)]
    if best:
        tiles.append(Tile("best value", short(best.score), f"trial {best.number}"))
    if difference:
        tiles.append(Tile("better by", short(float(difference.value[0])), "on fresh seeds"))
    hours = sum(trial.cost for trial in facts.trials if math.isfinite(trial.cost)) / 3600
    return [*tiles, Tile("core-hours", short(hours), "of all trials")]


def _fresh(facts: StudyFacts) -> Iterator[Section]:
    """Yield the comparison with the unchanged section on fresh seeds, if there is one."""
    if not facts.final:
        return
    rows = []
    for side in SIDES:
        values = [value for value in facts.final[side] if value is not None]
        lost = len(facts.final[side]) - len(values)
        each = ", ".join([*map(short, values), *["failed"] * lost])
        mean = mean_of(values) if values else None
        ends = [short(float(end[0])) for end in (mean.value, mean.low, mean.high)] if mean else [""] * 3
        rows.append([side, ends[0], " to ".join(ends[1:]), each])
    note = "95 % bootstrap intervals over seeds. The best of many values is biased upward."
    text = [facts.verdict]
    if facts.cheapest and facts.best and facts.cheapest is not facts.best:
        text.append(
            f"Within the interval of the best, trial {facts.best.number}, the cheapest is trial "
            f"{facts.cheapest.number}: {short(facts.cheapest.cost)} instead of "
            f"{short(facts.best.cost)} core-seconds."
        )
    head = ["side", "mean", "interval", "by seed"]
    yield Section(title="On fresh seeds", text=text, head=head, rows=rows, notes=[note])


def _charts(facts: StudyFacts) -> Iterator[Section]:
    """Yield charts: values by trial, the front of value and cost, parallel coordinates."""
    ended = complete(facts.trials)
    if not ended:
        return
    number, value = (np.array([getattr(trial, key) for trial in ended], float) for key in ("number", "score"))
    so_far = (np.maximum if facts.tune.direction == "maximize" else np.minimum).accumulate(value)
    lines = [
        Line(label="best so far", x=number, y=so_far, tone=1),
        Line(label="trial", x=number, y=value, dots=True, style="run"),
    ]
    chart = Chart(facts.tune.metric, lines, large=True, along="trial")
    note = "Complete trials only; pruned and failed ones are in the table."
    yield Section(title="Values of the trials", chart=chart, notes=[note])
    if facts.tune.cost:
        yield _front(ended, facts)
    yield _parallel(ended, facts)


def _front(ended: Sequence[TrialRecord], facts: StudyFacts) -> Section:
    """Return the chart of value over cost, with the front of trials that no other beats in both."""
    ordered = sorted(ended, key=lambda trial: trial.cost)
    front, best = list[TrialRecord](), -math.inf
    for trial in ordered:
        if facts.sign * trial.score > best:
            best = facts.sign * trial.score
            front.append(trial)

    def line(records: Sequence[TrialRecord], label: str, **looks: Any) -> Line:  # noqa: ANN401
        x, y = (np.array([getattr(trial, key) for trial in records], float) for key in ("cost", "score"))
        return Line(label=label, x=x, y=y, dots=True, **looks)

    lines = [line(front, "front", tone=1), line(ordered, "trial", style="crowd")]
    chart = Chart(f"{facts.tune.metric} over core-seconds", lines, large=True, along="core-seconds")
    return Section(title="Value for cost", chart=chart)


def _parallel(ended: Sequence[TrialRecord], facts: StudyFacts) -> Section:
    """Return the chart of parallel coordinates: a line for each trial across the parameters."""
    best, scores = facts.best, [trial.score for trial in ended]
    low, high = min(scores), max(scores)
    x = np.arange(1, len(facts.space) + 2, dtype=float)
    lines = []
    for trial in sorted(ended, key=lambda each: each is best)[-_MOST_LINES:]:
        places = [parameter.position(trial.values[path]) for path, parameter in facts.space.items()]
        places.append(((trial.score) - low) / (high - low) if high > low else 0.5)
        is_best = best is not None and trial.number == best.number
        looks: dict[str, Any] = {"tone": 1} if is_best else {"style": "run"}
        label = f"trial {trial.number}, the best" if is_best else ""
        lines.append(Line(label=label, x=x, y=np.array(places), **looks))
    axes = [f"{place}: {path}" for place, path in enumerate(facts.space, 1)]
    axes.append(f"{len(axes) + 1}: the value")
    note = f"{', '.join(axes)}. Each from its minimum, 0, to its maximum, 1."
    chart = Chart("Each trial across the parameters", lines, large=True, along="axis")
    return Section(title="Parallel coordinates", chart=chart, notes=[note])


def _importance(facts: StudyFacts) -> Iterator[Section]:
    """Yield the table of parameters: importance, and value in the best trial."""
    best, shares = facts.best, facts.importances
    rows = [
        [path, f"{shares[path]:.0%}" if path in shares else "", shown(best.values[path]) if best else ""]
        for path in facts.space
    ]
    head = ["parameter", "importance", "best trial"]
    notes = ["Importance: PED-ANOVA (arXiv 2304.10255), what distinguishes the best tenth of the trials."]
    yield Section(title="Parameters", head=head, rows=rows, notes=notes if shares else [])


def _tables(facts: StudyFacts) -> Iterator[Section]:
    """Yield the tables of trials, best first, and of failed ones."""
    states = ("complete", "pruned", "running")
    scored = [trial for trial in facts.trials if trial.state != "failed"]
    scored.sort(key=lambda trial: (states.index(trial.state), -facts.sign * trial.score))
    rows = []
    for trial in scored[:_MOST_ROWS]:
        folder = facts.folder.path
        title = link_to_page(str(trial.number), folder / f"trial_{trial.number:03d}", folder)
        values = [shown(trial.values[path]) for path in facts.space]
        rows.append([title, short(trial.score), trial.state, *values, short(trial.cost)])
    head = ["trial", "value", "state", *facts.space, "core-seconds"]
    cut_off = f"The first {_MOST_ROWS} of {len(scored)}; all are in {TRIALS}."
    yield Section(title="Trials", head=head, rows=rows, notes=[cut_off] if len(scored) > len(rows) else [])
    failed = [trial for trial in facts.trials if trial.state == "failed"]
    if failed:
        lost = [[str(trial.number), trial.why, *map(shown, trial.values.values())] for trial in failed]
        yield Section(title="Failed", head=["trial", "why", *facts.space], rows=lost[:_MOST_ROWS])
