"""A page that compares experiments; an experiment has runs with several seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from algorithm.app.report.charts import Chart, Line
from algorithm.app.report.curves import Series, experiment_lines
from algorithm.app.report.facts import Facts, Score
from algorithm.app.report.page import Page, Section, code, heading, link_to_page
from algorithm.app.report.settings import differences
from algorithm.core.wording import counted, listed, plus_minus
from algorithm.extras.standings.experiments import Experiment, behaviours_of, grouped
from algorithm.run.evaluation.statistics import mean_interval
from algorithm.store.files import write_text
from algorithm.store.rundir import RunDir

_LONGEST_NAME = 80
_CURVES = "Thick: the mean over seeds, with Student's 95 % interval. Thin: the runs. Evaluations only."
_OUTCOMES = (
    "Means over runs with the same interval. The best evaluation of a run is chosen after the fact and is "
    "biased upward."
)
_ALIKE = "All runs have the same configuration except for their seeds."


def write_comparison(runs: Sequence[RunDir]) -> Path:
    """Write ``compare_….html`` beside the runs' folders; return its path. Raises StorageError."""
    experiments = grouped([Facts.gather(run) for run in runs])
    path = runs[0].path.parent / f"{file_stem([experiment.name for experiment in experiments])}.html"
    write_text(path, comparison(experiments))
    return path


def file_stem(names: Sequence[str]) -> str:
    """Return the file name, without ending, of a comparison of these names; it is always the same."""
    joined = "_vs_".join(names).replace("/", "_")
    if len(joined) > _LONGEST_NAME:
        digest = hashlib.sha256("/".join(names).encode()).hexdigest()[:8]
        joined = f"{joined[:_LONGEST_NAME]}_{digest}"
    return f"compare_{joined}"


def comparison(experiments: Sequence[Experiment]) -> str:
    """Return the HTML of the page that compares ``experiments``."""
    runs = [facts for experiment in experiments for facts in experiment.runs]
    first, names = runs[0].run, [experiment.name for experiment in experiments]
    again = first.command("--report", *(facts.run.name for facts in runs))
    sections = [each for name in behaviours_of(experiments) for each in _behaviour(experiments, name)]
    settings = _settings(experiments)
    sections.append(
        Section(
            title="Configuration",
            text=["Where they differ." if settings else _ALIKE],
            head=["key", *names, "default value"],
            rows=settings,
        )
    )
    head = ["run", "seed", "state", "steps", "last evaluation"]
    sections.append(Section(title="Runs", head=head, rows=[_run(facts) for facts in runs]))
    return Page(
        title=f"{first.env}: {' against '.join(names)}",
        subtitle=f"{counted(len(experiments), 'experiment')}, {counted(len(runs), 'run')}",
        sections=sections,
        problems=[f"{facts.run.name}: {problem}" for facts in runs for problem in facts.problems],
        commands=[("Write this page again", again)],
    ).html


def _behaviour(experiments: Sequence[Experiment], behaviour: str) -> Iterator[Section]:
    """Yield the sections of one behaviour: learning curves and outcomes."""
    groups = {experiment.name: experiment.series(behaviour) for experiment in experiments}
    if not any(groups.values()):
        yield Section(
            title=heading("Learning curves", behaviour), text=["None of these runs was evaluated yet."]
        )
        return
    curves = Chart("Return over environment steps", group_lines(groups), large=True)
    yield Section(title=heading("Learning curves", behaviour), chart=curves, notes=[_CURVES])
    head = ["experiment", "seeds", "last evaluation", "best evaluation"]
    rows = [_outcome(experiment, behaviour) for experiment in experiments]
    yield Section(title=heading("Outcomes", behaviour), head=head, rows=rows, notes=[_OUTCOMES])


def group_lines(groups: Mapping[str, Sequence[Series]]) -> list[Line]:
    """Return the lines of several experiments. groups: experiment -> its runs, one a seed."""
    return [
        line
        for tone, (name, series) in enumerate(groups.items())
        for line in experiment_lines(series, f"{name}, {counted(len(series), 'run')}", tone=tone)
    ]


def _outcome(experiment: Experiment, behaviour: str) -> list[str]:
    """Return the row of an experiment in the table of outcomes."""
    runs = experiment.runs
    return [
        experiment.name,
        listed([facts.seed for facts in runs]),
        _over(_means([facts.last_evaluation(behaviour) for facts in runs])),
        _over(_means([facts.best_evaluation(behaviour) for facts in runs])),
    ]


def _means(scores: Sequence[Score | None]) -> list[float]:
    """Return the means of scores, without missing ones."""
    return [score.mean for score in scores if score is not None]


def _over(values: Sequence[float]) -> str:
    """Return mean and interval of values, one a run, as text."""
    if not values:
        return "none"
    interval = mean_interval(values)
    return plus_minus(interval.mean, interval.half_width)


def _settings(experiments: Sequence[Experiment]) -> list[list[str]]:
    """Return a row for each key that differs between runs: key, values of each experiment, default."""
    runs = [facts for experiment in experiments for facts in experiment.runs]
    rows = []
    for key, (*values, default) in differences([facts.config for facts in runs]).items():
        if len(set(values)) > 1:
            of_runs = iter(values)
            cells = [listed([next(of_runs) for _ in experiment.runs]) for experiment in experiments]
            rows.append([code(key), *cells, default])
    return rows


def _run(facts: Facts) -> list[str]:
    """Return a row of the table of runs, with a link to the report of the run if there is one."""
    score = facts.last_evaluation(facts.behaviours[0])
    shown = "none" if score is None else plus_minus(score.mean, score.half_width)
    steps = "none" if facts.steps is None else f"{facts.steps:,}"
    title = link_to_page(facts.run.name, facts.run.path, facts.run.path.parent)
    return [title, facts.seed, facts.state, steps, shown]
