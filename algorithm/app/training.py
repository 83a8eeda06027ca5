"""A training as a command: lock, console and log around it, its result and its page."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from algorithm.app.cli.train import TrainOptions
from algorithm.app.cli.train_flags import config_flags, notices
from algorithm.app.console.output import close_logging, open_console, setup_logging
from algorithm.app.summaries import plot_returns, show_finish, start_screen, write_outcome, write_page
from algorithm.config.loader import LoadedConfig
from algorithm.core.console import Console
from algorithm.core.errors import EnvError, UsageError
from algorithm.core.system.processes import leave_import
from algorithm.env.kinds import OBJECT
from algorithm.env.registry import missing_object
from algorithm.nn.process import own_modes
from algorithm.run.build import build
from algorithm.run.callbacks import Callback, end_of_learn
from algorithm.run.experience.faults import Faults
from algorithm.run.inputs import RunInputs, set_up, use_modules
from algorithm.run.runtime import LocalRuntime, Runtime
from algorithm.run.state import Start
from algorithm.run.trainer import BuiltTraining, Trainer
from algorithm.run.training_context import TrainingContext
from algorithm.store.lock import RunLock
from algorithm.store.logs.upload import require_upload
from algorithm.store.rundir import RunDir

_LOGGER = logging.getLogger("algorithm")


@dataclass(frozen=True, kw_only=True)
class Screen:
    """Settings of a training's output.

    quiet:     show only warnings
    result:    also show the result at the end
    debug_log: write debug lines to ``train.log``
    notices:   warnings about flags without effect
    variable:  name of the run in Python, for calls instead of commands at the end
    """

    quiet: bool = False
    result: bool = True
    debug_log: bool = False
    notices: Sequence[str] = ()
    variable: str = ""

    @classmethod
    def in_python(cls, callbacks: Sequence[Callback], *, quiet: bool) -> Screen:
        """Return the settings for a call of ``train``, ``resume`` or ``learn``, which has a callback."""
        variable = "run" if end_of_learn(callbacks) is None else "agent.run"
        return cls(quiet=quiet, result=not quiet, variable=variable)

    @classmethod
    def of(cls, options: TrainOptions, loaded: LoadedConfig) -> Screen:
        """Return the settings for a command line."""
        return cls(
            quiet=options.quiet, debug_log=options.logger_in_file, notices=notices(options, loaded.config)
        )


@dataclass(frozen=True)
class Trained:
    """A finished training: its run, the content of ``result.json``, and the exit code."""

    run: RunDir
    result: Mapping[str, object]
    exit_code: int


def inputs_of(options: TrainOptions, loaded: LoadedConfig, run: RunDir) -> RunInputs:
    """Return the inputs of a training by a command line."""
    use_modules(loaded)
    return RunInputs(
        loaded=loaded,
        run=run,
        device=options.device,
        arguments=sys.argv,
        flags=config_flags(options),
        evaluations=options.evaluations,
        init_from=options.init_from if options.resume else None,
        task_nn=options.use_env_nn,
        greedy=options.disable_sample,
        render=options.render,
    )


@contextmanager
def new_run(
    loaded: LoadedConfig, *, name: str | None = None, models: Path, argument: str
) -> Iterator[RunDir]:
    """Make the folder of a new run; remove it if the block fails before training.

    name: instead of ``base_config.name``; models: folder of all runs; argument: the task as the user named it
    """
    leave_import()
    require_upload(loaded.config.wandb_config)
    run = RunDir.create(
        loaded.env_label, name or loaded.config.base_config.name, models=models, argument=argument
    )
    try:
        yield run
    except BaseException:
        run.remove_failed_start()
        raise


@own_modes()
def run_training(
    inputs: RunInputs,
    *,
    start: Callable[[Console], Start] | None = None,
    runtime: type[Runtime] = LocalRuntime,
    screen: Screen,
) -> Trained:
    """Train in the folder of the run, under its lock, and write result and page.

    start: reads the checkpoint to continue from, once the folder is locked; None for a new training
    """
    leave_import()
    base, run = inputs.loaded.config.base_config, inputs.run
    if base.kind is OBJECT and inputs.env_object is None:
        raise missing_object(base.env_name)
    _check_evaluations(inputs)
    with ExitStack() as stack:
        context = _opened(inputs, start, screen, stack)
        console = context.console

        def end_of_hang(error: EnvError) -> None:
            _record_failure(run, console, error)
            context.lock.release()

        try:
            built = build(context, runtime)
            loaded = context.loaded
            _show_start(context, built)
            outcome = Trainer(built, loaded.config, inputs.stop, inputs.evaluations).run(end_of_hang)
        except Exception as error:
            _record_failure(run, console, error)
            raise
        plot_returns(loaded, run, outcome, console)
        built.metrics.close()  # before the result, which marks a run as finished
        result = write_outcome(run, outcome, loaded.seed, console)
        if screen.result:
            cost, modes = built.saver.summary, built.render_modes
            show_finish(console, run, outcome, cost, modes, variable=screen.variable)
    return Trained(run, result, inputs.stop.exit_code)


def _opened(
    inputs: RunInputs, start: Callable[[Console], Start] | None, screen: Screen, stack: ExitStack
) -> TrainingContext:
    """Return the context of the training, with console, lock and checkpoint; ``stack`` closes them."""
    run = inputs.run
    console = _logged_console(run, screen, stack)
    lock = stack.enter_context(RunLock(run.lock, notice=console.message))
    loaded = set_up(inputs.loaded)
    stack.enter_context(inputs.stop)
    begun = start(console) if start else None
    return TrainingContext(
        inputs=inputs,
        loaded=loaded,
        device=inputs.device,
        faults=Faults(console, go_on=inputs.stop.check_start),
        stack=stack,
        files=run.path,
        since=begun.saved.step if begun else 0,
        env_object=inputs.env_object,
        lock=lock,
        start=begun,
    )


def _logged_console(run: RunDir, screen: Screen, stack: ExitStack) -> Console:
    """Return a console whose lines go to the run's log as well, until ``stack`` is closed."""
    logger = setup_logging(run.train_log, debug=screen.debug_log)
    stack.callback(close_logging)
    console = stack.enter_context(open_console(quiet=screen.quiet, logger=logger))
    for text in screen.notices:
        console.warn(text)
    return console


def _record_failure(run: RunDir, console: Console, error: Exception) -> None:
    """Log the error with its traceback, and write the report from what the run has saved so far."""
    _LOGGER.error("the run failed", exc_info=error)
    write_page(run, console)


def _show_start(context: TrainingContext, built: BuiltTraining) -> None:
    """Show the start screen, and notices on things that are not resumed exactly."""
    inputs, console, resumed = context.inputs, context.console, context.start
    agents = built.training.agents
    console.start(
        start_screen(
            context.loaded,
            inputs.run,
            built.runtime.env,
            agents,
            resumed=resumed.rows if resumed else [],
            until=end_of_learn(inputs.callbacks),
        )
    )
    for agent in agents.values():
        for text in agent.notices:
            console.warn(text)
    if inputs.greedy:
        console.warn("--disable_sample while training: no exploration, and no importance sampling")
    for text in context.notices:
        if resumed:
            console.warn(f"resumed, not bit-exact: {text}")
        else:
            console.message(text)
    if resumed and not context.notices:
        console.message("resumed exactly: the run continues as if it had never stopped")


def _check_evaluations(inputs: RunInputs) -> None:
    """Raise UsageError for ``--evaluations`` if the training has none before its end."""
    if inputs.evaluations is not None and not inputs.loaded.config.evaluates_on_the_way:
        raise UsageError(
            "--evaluations needs evaluations during training",
            where=f"{inputs.loaded.source}: eval_config.per_step",
            why="they are switched off",
            fix="-o eval_config.per_step=2000, or leave --evaluations out",
        )
