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
from algorithm.core.wording import counted, listed, plus_minus, short
from algorithm.extras.standings.aggregates import Curve, Runs
from algorithm.extras.standings.experiments import (
    Experiment,
    behaviours_of,
    first_step_at,
    grouped,
    level_of,
    mean_over,
)
from algorithm.extras.standings.standing import course_plots, head, rows, standings, write_plots
from algorithm.run.evaluation.statistics import mean_interval
from algorithm.store.files import write_text
from algorithm.store.rundir import RunDir

_LONGEST_NAME = 80
_CURVES = "Thick: the mean over seeds, with Student's 95 % interval. Thin: the runs. Evaluations only."
_OUTCOMES = (
    "Means over runs with the same interval. The best evaluation of a run is chosen after the fact and is "
    "biased upward. The mean return is the area under the curve where all runs were evaluated."
)
_STANDING = (
    "IQM: the mean of the middle half of the runs, with the 95 % interval of a bootstrap over runs, which is "
    "too narrow with fewer than five. Core-minutes are those of all processors, without evaluations. The end "
    "is the last step at which all runs were evaluated; half of it may lie between evaluations. The "
    "probability is that of a run drawn at random."
)
_ALIKE = "All runs have the same configuration except for their seeds."


def write_comparison(runs: Sequence[RunDir]) -> list[Path]:
    """Write ``compare_….html`` and, if anything was evaluated, ``compare_….png`` beside the runs' folders.

    Returns the paths written. Raises StorageError if a file cannot be written.
    """
    experiments = grouped([Facts.gather(run) for run in runs])
    path = runs[0].path.parent / f"{file_stem([experiment.name for experiment in experiments])}.html"
    write_text(path, comparison(experiments))
    groups = _series(experiments, behaviours_of(experiments)[0])
    plots = course_plots(*_sides(groups), runs[0].env)
    if not plots:
        return [path]
    picture = path.with_suffix(".png")
    write_plots(picture, plots)
    return [path, picture]


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


def _series(experiments: Sequence[Experiment], behaviour: str) -> dict[str, list[Series]]:
    """Return the curves of each experiment's runs in a behaviour."""
    return {experiment.name: experiment.series(behaviour) for experiment in experiments}


def _sides(groups: Mapping[str, Sequence[Series]]) -> tuple[dict[str, Runs], dict[str, int]]:
    """Return the experiments as sides with one task, and the number of each one's colour."""
    sides: dict[str, Runs] = {
        name: {"": [Curve(run.eval_step, run.eval_return, run.eval_core) for run in series]}
        for name, series in groups.items()
        if series
    }
    return sides, {name: tone for tone, name in enumerate(groups)}


def _behaviour(experiments: Sequence[Experiment], behaviour: str) -> Iterator[Section]:
    """Yield the sections of one behaviour: learning curves, outcomes, side by side."""
    groups = _series(experiments, behaviour)
    if not any(groups.values()):
        yield Section(
            title=heading("Learning curves", behaviour), text=["None of these runs was evaluated yet."]
        )
        return
    curves = Chart("Return over environment steps", group_lines(groups), large=True)
    yield Section(title=heading("Learning curves", behaviour), chart=curves, notes=[_CURVES])
    names, cells = _outcomes(experiments, groups, behaviour)
    yield Section(title=heading("Outcomes", behaviour), head=names, rows=cells, notes=[_OUTCOMES])
    sides, tones = _sides(groups)
    first = next(iter(sides))
    charts = [
        Chart(f"Interquartile mean over {plot.along}", plot.lines, along=plot.along)
        for plot in course_plots(sides, tones)
    ]
    standing = rows(standings(sides, first))
    yield Section(
        title=heading("Side by side", behaviour),
        charts=charts,
        head=head(first),
        rows=standing,
        notes=[_STANDING],
    )


def group_lines(groups: Mapping[str, Sequence[Series]]) -> list[Line]:
    """Return the lines of several experiments. groups: experiment -> its runs, one a seed."""
    return [
        line
        for tone, (name, series) in enumerate(groups.items())
        for line in experiment_lines(series, f"{name}, {counted(len(series), 'run')}", tone=tone)
    ]


def _outcomes(
    experiments: Sequence[Experiment], groups: Mapping[str, Sequence[Series]], behaviour: str
) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of outcomes, with a row for each experiment."""
    every = [run for series in groups.values() for run in series]
    low = max(float(run.eval_step[0]) for run in every)
    high = min(float(run.eval_step[-1]) for run in every)
    level = level_of(groups)
    rows = []
    for experiment in experiments:
        runs, series = experiment.runs, groups[experiment.name]
        areas = [mean_over(each.eval_step, each.eval_return, low, high) for each in series if low <= high]
        row = [
            experiment.name,
            listed([facts.seed for facts in runs]),
            _over(_means([facts.last_evaluation(behaviour) for facts in runs])),
            _over(_means([facts.best_evaluation(behaviour) for facts in runs])),
            _over(areas),
        ]
        rows.append(row if level is None else [*row, _reached(series, level)])
    area = f"mean return, steps {low:,.0f} to {high:,.0f}" if low <= high else "mean return"
    head = ["experiment", "seeds", "last evaluation", "best evaluation", area]
    return head if level is None else [*head, f"steps to {short(level)}"], rows


def _means(scores: Sequence[Score | None]) -> list[float]:
    """Return the means of scores, without missing ones."""
    return [score.mean for score in scores if score is not None]


def _over(values: Sequence[float]) -> str:
    """Return mean and interval of values, one a run, as text."""
    if not values:
        return "none"
    interval = mean_interval(values)
    return plus_minus(interval.mean, interval.half_width)


def _reached(series: Sequence[Series], level: float) -> str:
    """Return the steps to a level over runs, as text."""
    steps = [step for run in series if (step := first_step_at(run, level)) is not None]
    if not steps:
        return f"none of {len(series)}"
    return f"{_over(steps)} ({len(steps)} of {len(series)})"


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
