"""``--repeat N``: the same training with N seeds, and one summary of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from algorithm.app.cli.train import TrainOptions
from algorithm.app.console.output import open_console
from algorithm.app.report.curves import plot_curve, read_series
from algorithm.app.report.summary import repeat_rows, repeat_summary
from algorithm.app.training import Trained, train
from algorithm.config.loader import LoadedConfig
from algorithm.runs.files import write_json
from algorithm.runs.rundir import RunDir


def train_repeatedly(
    options: TrainOptions,
    loaded: LoadedConfig,
    load: Callable[[int], LoadedConfig],
) -> int:
    """Train ``options.repeat`` runs NAME, NAME_2, … with seed, seed+1, …; returns the exit code.

    loaded: the configuration of the first; load: that of another seed, with its own random draws.
    All are loaded before the first run, so that edits meanwhile have no effect on them.
    A signal ends the present run and those that would follow.
    """
    name = loaded.config.base_config.name
    names = [name, *(f"{name}_{number}" for number in range(2, options.repeat + 1))]
    all_loaded = [loaded, *(load(loaded.seed + index) for index in range(1, options.repeat))]
    for each in names:
        RunDir.check_free(loaded.env_label, each, models=options.directory, argument=options.env)
    runs: list[Trained] = []
    for each, configured in zip(names, all_loaded, strict=True):
        runs.append(train(options, configured, name=each))
        if runs[-1].exit_code:
            break
    if len(runs) > 1:
        _summarise(options, runs, loaded.env_label)
    return runs[-1].exit_code


def _summarise(options: TrainOptions, runs: Sequence[Trained], title: str) -> None:
    first = runs[0].run
    results = [trained.result for trained in runs]
    write_json(first.path / "repeat.json", repeat_summary(results))
    series = [read_series(trained.run.metrics_jsonl, trained.run.name) for trained in runs]
    picture = first.plots / "repeat.png"
    plot_curve(picture, series, title=f"{title}, {len(runs)} seeds")
    with open_console(quiet=options.quiet) as console:
        commands = [("picture", first.shown(picture)), ("numbers", first.shown(first.path / "repeat.json"))]
        console.finish(repeat_rows(results), commands)
