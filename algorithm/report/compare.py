"""``--report``: the page of one run, or a page and a picture that compare experiments of several seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

from algorithm.config.cli import TrainOptions
from algorithm.config.locate import EnvFolder
from algorithm.evaluation.statistics import bootstrap_band, mean_interval
from algorithm.report.curves import Series, common_grid, plot_groups
from algorithm.report.experiments import (
    Experiment,
    behaviours_of,
    first_step_at,
    grouped,
    level_of,
    mean_over,
)
from algorithm.report.facts import Facts, Score
from algorithm.report.html import Content, Markup, commands, join, notice, page, section, table, tag
from algorithm.report.report import write_report
from algorithm.report.settings import differences
from algorithm.report.svg import Line, large_figure
from algorithm.run.files import write_text
from algorithm.run.rundir import RunDir, no_run_matches, run_names
from algorithm.spec import DEFAULT_BEHAVIOUR
from algorithm.wording import counted, listed, plus_minus, short

_WILD = frozenset("*?[")
_LONGEST_NAME = 80


def report(options: TrainOptions, folder: EnvFolder) -> int:
    """Write the pages that ``--report NAME [NAME …]`` asks for and print their paths; returns the exit code.

    One name: the page of that run. Several, or a name with ``*``, ``?`` or ``[…]``: a page that compares the
    runs of those names. Raises UsageError for a pattern without runs, StorageError for a run that does not
    exist and a page that cannot be written.
    """
    names = options.report
    matched = matching_names(folder.label, names, argument=options.env)
    runs = [RunDir.open(folder.label, name, argument=options.env) for name in matched]
    if len(names) == 1 and not _WILD & set(names[0]):
        paths = [write_report(runs[0])]
    else:
        paths = write_comparison(runs)
    for path in paths:
        print(runs[0].shown(path))
    return 0


def matching_names(env: str, patterns: tuple[str, ...], *, argument: str = "") -> list[str]:
    """The runs of ``env`` that are meant, each once, patterns in their order and the oldest run first.

    A name without a wildcard stays as it is. Raises UsageError for a pattern that matches none.
    """
    known = run_names(env)[::-1]
    found: dict[str, None] = {}
    for pattern in patterns:
        if pattern in known or not _WILD & set(pattern):
            found[pattern] = None
            continue
        matched = [name for name in known if fnmatchcase(name, pattern)]
        if not matched:
            raise no_run_matches(env, pattern, argument=argument)
        found |= dict.fromkeys(matched)
    return list(found)


def write_comparison(runs: Sequence[RunDir]) -> list[Path]:
    """Write ``compare_….html`` and, if anything was evaluated, ``compare_….png`` beside the runs' folders.

    Returns their paths. Raises StorageError where they cannot be written.
    """
    experiments = grouped([Facts.gather(run) for run in runs])
    behaviour = behaviours_of(experiments)[0]
    stem = file_stem([experiment.name for experiment in experiments])
    path = runs[0].path.parent / f"{stem}.html"
    write_text(path, render(experiments))
    series = {one.name: found for one in experiments if (found := one.series(behaviour))}
    if not series:
        return [path]
    picture = path.with_suffix(".png")
    plot_groups(picture, series, title=runs[0].env)
    return [path, picture]


def file_stem(names: Sequence[str]) -> str:
    """A file name for a comparison; the same names give the same one."""
    joined = "_vs_".join(names)
    if len(joined) > _LONGEST_NAME:
        digest = hashlib.sha256("/".join(names).encode()).hexdigest()[:8]
        joined = f"{joined[:_LONGEST_NAME]}_{digest}"
    return f"compare_{joined}"


def render(experiments: Sequence[Experiment]) -> Markup:
    """The page."""
    first = experiments[0].runs[0].run
    runs = [facts for experiment in experiments for facts in experiment.runs]
    names = " against ".join(experiment.name for experiment in experiments)
    problems = [f"{facts.run.name}: {problem}" for facts in runs for problem in facts.problems]
    again = first.command("--report", *(facts.run.name for facts in runs))
    return page(
        f"{first.env}: {names}",
        tag("h1", f"{first.env}: {names}"),
        tag("p", f"{counted(len(experiments), 'experiment')}, {counted(len(runs), 'run')}", class_="lead"),
        join(notice(problem) for problem in problems),
        join(_behaviour(experiments, name) for name in behaviours_of(experiments)),
        _settings(experiments),
        _runs(experiments),
        section("Commands", commands([("Write this page anew", again)])),
    )


def _behaviour(experiments: Sequence[Experiment], behaviour: str) -> Markup:
    series = {experiment.name: experiment.series(behaviour) for experiment in experiments}
    suffix = "" if behaviour == DEFAULT_BEHAVIOUR else f": {behaviour}"
    if not any(series.values()):
        return section(f"Learning curves{suffix}", tag("p", "None of these runs was evaluated yet."))
    lines = [line for k, one in enumerate(series.values()) for line in _lines(one, k % 6)]
    text = "Thick: the mean over seeds, with its 95 % bootstrap interval. Thin: the runs. Evaluations only."
    curves = section(
        f"Learning curves{suffix}", large_figure("Return over environment steps", lines), tag("p", text)
    )
    return join([curves, _outcomes(experiments, series, behaviour, suffix)])


def _lines(series: Sequence[Series], tone: int) -> list[Line]:
    """Of one experiment: its runs, and their mean with its band."""
    if not series:
        return []
    lines = [
        Line(label="", x=one.eval_step, y=one.eval_return, style=f"seed t{tone}")
        for one in series
        if len(series) > 1
    ]
    steps, returns = common_grid(series)
    band = bootstrap_band(returns) if len(series) > 1 and len(steps) else None
    label = f"{series[0].label}, {counted(len(series), 'run')}"
    mean = Line(label=label, x=steps, y=returns.mean(axis=0), style=f"line t{tone}", band=band)
    return [*lines, mean]


def _outcomes(
    experiments: Sequence[Experiment], series: Mapping[str, Sequence[Series]], behaviour: str, suffix: str
) -> Markup:
    every = [one for found in series.values() for one in found]
    low = max(float(one.eval_step[0]) for one in every)
    high = min(float(one.eval_step[-1]) for one in every)
    level = level_of(series)
    rows: list[list[Content]] = []
    for experiment in experiments:
        runs, found = experiment.runs, series[experiment.name]
        last = [facts.last_evaluation(behaviour) for facts in runs]
        best = [facts.best_evaluation(behaviour) for facts in runs]
        areas = [mean_over(one.eval_step, one.eval_return, low, high) for one in found] if low <= high else []
        row = [
            experiment.name,
            listed([facts.seed for facts in runs]),
            _over(_means(last)),
            _over(_means(best)),
        ]
        rows.append([*row, _over(areas), *([] if level is None else [_reached(found, level)])])
    head: list[Content] = ["experiment", "seeds", "last evaluation", "best evaluation"]
    head.append(f"mean return, steps {low:,.0f} to {high:,.0f}" if low <= high else "mean return")
    head += [] if level is None else [f"steps to {short(level)}"]
    text = (
        "Means over runs with Student's 95 % interval. The best evaluation of a run is chosen after the fact "
    )
    text += "and flatters it. The mean return is the area under the curve where all runs were evaluated."
    return section(f"Outcomes{suffix}", table("outcomes", head, rows), tag("p", text))


def _means(scores: Sequence[Score | None]) -> list[float]:
    return [score.mean for score in scores if score is not None]


def _over(values: Sequence[float]) -> str:
    if not values:
        return "none"
    interval = mean_interval(values)
    return plus_minus(interval.mean, interval.half_width)


def _reached(series: Sequence[Series], level: float) -> str:
    steps = [step for one in series if (step := first_step_at(one, level)) is not None]
    if not steps:
        return f"none of {len(series)}"
    return f"{_over(steps)} ({len(steps)} of {len(series)})"


def _settings(experiments: Sequence[Experiment]) -> Markup:
    """Keys in which experiments, or runs within one, differ."""
    runs = [facts for experiment in experiments for facts in experiment.runs]
    rows: list[list[Content]] = []
    for difference in differences([facts.config for facts in runs]):
        *values, default = difference.values
        if len(set(values)) > 1:
            of_runs = iter(values)
            cells = [listed([next(of_runs) for _ in one.runs]) for one in experiments]
            rows.append([tag("code", difference.key), *cells, default])
    if not rows:
        return section(
            "Configuration", tag("p", "All runs have the same configuration, but for their seeds.")
        )
    head = ["key", *(experiment.name for experiment in experiments), "default value"]
    return section("Configuration", tag("p", "Where they differ."), table("configuration", head, rows))


def _runs(experiments: Sequence[Experiment]) -> Markup:
    rows: list[list[Content]] = []
    for facts in (facts for experiment in experiments for facts in experiment.runs):
        name: Content = facts.run.name
        if facts.run.report.exists():
            name = tag("a", facts.run.name, href=f"{quote(facts.run.name)}/{facts.run.report.name}")
        score = facts.last_evaluation(facts.behaviours[0])
        shown = "none" if score is None else plus_minus(score.mean, score.half_width)
        steps = "none" if facts.steps is None else f"{facts.steps:,}"
        rows.append([name, facts.seed, facts.state, steps, shown])
    return section("Runs", table("runs", ["run", "seed", "state", "steps", "last evaluation"], rows))
