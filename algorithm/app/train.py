"""The commands that train: a new run, several that differ in their seeds, or the continuation of one.

A run continues (``--resume``) from its newest good checkpoint, as if it never stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from algorithm.agents.networks import pick_device
from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import config_flags
from algorithm.app.console.output import open_console
from algorithm.app.playable import find_run, recorded_specs
from algorithm.app.training import Screen, Trained, inputs_of, new_run, run_training
from algorithm.config.loader import LoadedConfig, load_config, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.config.resume_rules import changes, refuse
from algorithm.core.console import Console
from algorithm.core.data import State
from algorithm.core.errors import COMMON_BLOCK, StorageError, UsageError
from algorithm.core.program import flag_or_argument
from algorithm.core.reading import read_json
from algorithm.run.context import fitted
from algorithm.run.counters import Counters
from algorithm.run.inputs import RunInputs
from algorithm.run.runtime import LocalRuntime, Runtime
from algorithm.run.state import Start, misfit_errors
from algorithm.store.checkpoints.checkpoint import Checkpoint
from algorithm.store.checkpoints.folders import checkpoint_steps
from algorithm.store.checkpoints.manager import find_checkpoint, intact_checkpoints
from algorithm.store.follow_up_commands import resume_command
from algorithm.store.logs.upload import require_upload
from algorithm.store.names import Ckpt
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


def resume(
    options: TrainOptions,
    folder: EnvFolder,
    *,
    runtime: type[Runtime] = LocalRuntime,
    flags: Mapping[str, object] | None = None,
    defaults: Mapping[str, object] = MappingProxyType({}),
) -> int:
    """Continue the newest run of the environment, or that of ``--name``; return the exit code.

    flags, defaults: see :func:`~algorithm.config.loader.load_config`, by default the flags of ``options``

    The run's own configuration counts, with the command line's changes; with ``--config`` the task's does.
    """
    run = find_run(options, folder)
    former = load_config_file(run.config, env=folder, require_runnable=True)
    wanted = _wanted(
        options, folder, run, former, config_flags(options) if flags is None else flags, defaults
    )
    return continue_run(
        inputs_of(options, wanted, run),
        former,
        ckpt=options.ckpt,
        runtime=runtime,
        screen=Screen.of(options, wanted),
    ).exit_code


def continue_run(
    inputs: RunInputs,
    former: LoadedConfig,
    *,
    ckpt: Ckpt | None = None,
    runtime: type[Runtime] = LocalRuntime,
    screen: Screen,
) -> Trained:
    """Continue the run of ``inputs``.

    former: configuration of the run until now
    ckpt:   checkpoint to continue from, by default the newest intact one
    Raises UsageError for changes that do not fit the learned state, and if nothing is left to do.
    """
    run, wanted = inputs.run, inputs.loaded
    _refuse_other_kind(run, is_learner=runtime.remote)
    if inputs.device == "auto":
        inputs = replace(inputs, device=_last_device(run))
    changed = changes(former, wanted)
    refuse(changed)
    require_upload(wanted.config.wandb_config)

    def start(console: Console) -> Start:
        if not checkpoint_steps(run.checkpoints):
            raise StorageError(
                "there is nothing to resume from",
                where=run.shown(run.checkpoints),
                why=f"the run ended before its first checkpoint ({COMMON_BLOCK}.save_model_per_step)",
                fix=f"start a new run:\n{run.new_run_command(run.free_name)}",
            )
        if ckpt is not None:
            saved, older = find_checkpoint(run.checkpoints, ckpt, warn=console.warn), None
        else:
            older = intact_checkpoints(run.checkpoints, warn=console.warn)
            saved = next(older)
        _refuse_if_done(saved, wanted, run, inputs.evaluations)
        return Start(saved, changed, older)

    return run_training(inputs, start=start, runtime=runtime, screen=screen)


def _last_device(run: RunDir) -> str:
    """Return the device that the user named last; ``auto`` if this machine does not have it."""
    with suppress(UsageError):
        pick_device(run.device)
        return run.device
    return "auto"


def _refuse_other_kind(run: RunDir, *, is_learner: bool) -> None:
    """Raise UsageError for a learner's run in one process, and the reverse: their states differ."""
    if run.endpoint.exists() == is_learner:
        return
    by = "a learner and its actors" if run.endpoint.exists() else "one process"
    raise UsageError(
        f"run {run.name!r} was trained by {by}",
        where=run.shown(run.path),
        why="it can be resumed only in the same way",
        fix=run.training_command("-n", run.name, "--resume"),
    )


def _wanted(
    options: TrainOptions,
    folder: EnvFolder,
    run: RunDir,
    former: LoadedConfig,
    flags: Mapping[str, object],
    defaults: Mapping[str, object],
) -> LoadedConfig:
    """Load the run's own configuration with changes, or with ``--config`` that of the task."""
    flags = {**flags, "base_config.name": former.config.base_config.name}
    if options.config is None:
        return load_config_file(
            run.config, options.overrides, flags, options.seed, env=folder, require_runnable=True
        )
    seed = former.seed if options.seed is None else options.seed
    loaded = load_config(
        options.env,
        options.config,
        options.overrides,
        flags,
        seed=seed,
        defaults=defaults,
        require_runnable=True,
    )
    return fitted(loaded, recorded_specs(read_json(run.manifest).get("spaces"), run.manifest))


def _refuse_if_done(saved: Checkpoint, wanted: LoadedConfig, run: RunDir, evaluations: int | None) -> None:
    """Raise UsageError if a limit of the configuration is reached already."""
    counted = Counters(())
    with misfit_errors(saved.path):
        counted.load_state(State(meta=saved.state["run"]["counters"]))
    ends = counted.ends(wanted.config.base_config, evaluations)
    if not _has_ended(run, saved.step):
        ends = {by: end for by, end in ends.items() if by == "evaluations"}
    if not ends:
        return
    further = [flag for _, flags in ends.values() for flag in flags]
    raise UsageError(
        "nothing is left to do",
        where=run.shown(saved.path),
        why=", and ".join(why for why, _ in ends.values()),
        fix=f"{resume_command(run, *further, variable=flag_or_argument('', 'run'))}    (train longer)",
    )


def _has_ended(run: RunDir, step: int) -> bool:
    """Return whether the result was written, with an evaluation at ``step``.

    The last checkpoint is written before: a kill or a signal in between leaves the evaluation to be done.
    """
    if not run.result.exists():
        return False
    last = run.read_result().get("last_eval")
    return isinstance(last, dict) and last.get("step") == step
