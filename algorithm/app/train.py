"""The command that trains: one run, or several that differ in their seeds."""

from __future__ import annotations

from collections.abc import Callable

from algorithm.app.cli.train import TrainOptions
from algorithm.app.console.output import open_console
from algorithm.app.training import Screen, Trained, inputs_of, new_run, run_training
from algorithm.config.loader import LoadedConfig
from algorithm.run.runtime import LocalRuntime, Runtime
from algorithm.store.rundir import RunDir


def train(
    options: TrainOptions,
    loaded: LoadedConfig,
    load: Callable[[int], LoadedConfig] | None = None,
    runtime: type[Runtime] = LocalRuntime,
) -> int:
    """Train ``options.repeat`` runs NAME, NAME_2, … with seed, seed+1, …; return the exit code.

    ``{time}`` in the name is replaced once for all runs: they are one experiment.

    loaded: configuration of the first run; load: returns that of another seed, with its own random draws.
    All are loaded before the first run, so that edits meanwhile have no effect on them.
    A signal ends the current run, and the later ones are left out.
    """
    name, models, task = loaded.config.base_config.name, options.directory, options.env
    names = [name, *(f"{name}_{number}" for number in range(2, options.repeat + 1))]
    all_loaded = [loaded]
    if load is not None:
        all_loaded += [load(loaded.seed + index) for index in range(1, options.repeat)]
    for each in names:
        RunDir.check_free(loaded.env_label, each, models=models, argument=task)
    runs: list[Trained] = []
    for number, configured in enumerate(all_loaded, start=1):
        name = f"{runs[0].run.name}_{number}" if runs else name
        with new_run(configured, name=name, models=models, argument=task) as run:
            inputs, screen = inputs_of(options, configured, run), Screen.of(options, configured)
            runs.append(run_training(inputs, runtime=runtime, screen=screen))
        if runs[-1].exit_code:
            break
    if len(runs) > 1:
        names = [trained.run.name for trained in runs]
        with open_console(quiet=options.quiet) as console:
            console.command("compare the seeds", runs[0].run.command("--report", *names))
    return runs[-1].exit_code
