"""A whole run from its options: training, or playing with a trained agent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from algorithm.agents.base import Agent
from algorithm.agents.networks import pick_device
from algorithm.app.cli.train import TrainOptions, config_flags
from algorithm.app.cli.train import notices as notices_of
from algorithm.app.console.output import close_logging, open_console, setup_logging
from algorithm.app.summaries import result_json, show_finish, start_screen, write_outcome, write_page
from algorithm.config.loader import LoadedConfig, dump_config, overlaid
from algorithm.core.console import Console
from algorithm.core.errors import EnvError, UsageError, UserError
from algorithm.core.spec import AgentSpec
from algorithm.env.base import VecEnv
from algorithm.env.pool.monitor_process import monitor_process
from algorithm.env.pool.resume_check import spec_as_json
from algorithm.evaluation.video import VideoRecorders, no_video
from algorithm.experience.failure_dump import FailureDumps
from algorithm.experience.faults import Faults
from algorithm.experience.non_finite import Drop, OnNonFinite, Stop
from algorithm.replay.budget import MemoryBudget
from algorithm.runs.checkpoints.manager import CheckpointManager, passed_over
from algorithm.runs.checkpoints.manifest import DamagedError
from algorithm.runs.lock import RunLock
from algorithm.runs.logs.wandb_sink import require_wandb
from algorithm.runs.provenance import made_with
from algorithm.runs.rundir import RunDir
from algorithm.train.assembly import (
    check_eval_spaces,
    check_evaluations,
    close_env,
    env_file,
    make_agents,
    make_env,
    make_metrics,
    nn_file,
    plugins_of,
    set_up,
)
from algorithm.train.callbacks import Callback, CallbackError, Callbacks, Training, load_callbacks
from algorithm.train.checkpointer import Checkpointer, kept_replays
from algorithm.train.profile import TrainingProfile
from algorithm.train.randomness import seed_globally
from algorithm.train.runtime import OneProcess, Runtime, Wire
from algorithm.train.signals import StopRequest
from algorithm.train.state import (
    ForeignNetworks,
    Start,
    TrainState,
    begin_with_networks,
    fitting,
    load_foreign_replays,
    load_replays,
)
from algorithm.train.trainer import Trainer

_DROPPED_IN_EVALUATIONS = 100  # episodes; an evaluation waits for whole ones


@dataclass(frozen=True)
class Trained:
    """Result of a training run."""

    run: RunDir
    result: Mapping[str, object]
    exit_code: int


def train(
    options: TrainOptions,
    loaded: LoadedConfig,
    arguments: Sequence[str],
    *,
    name: str | None = None,
    wire: Wire = OneProcess,
    callbacks: Sequence[Callback] = (),
) -> Trained:
    """Train one new run to its end.

    arguments: the command line, for the manifest; name: of the run, instead of ``base_config.name``; wire and
    callbacks: see :func:`run_training`.
    """
    if options.ckpt is not None:
        raise UsageError(
            "--ckpt chooses what to go on from, or what to play with",
            why="a new training starts from nothing",
            fix="add --resume, --run or --eval N, or leave --ckpt out",
        )
    require_wandb(loaded.config.wandb_config)
    name = name or loaded.config.base_config.name
    run = RunDir.create(loaded.env_label, name, models=options.directory, argument=options.env)
    try:
        return run_training(options, loaded, arguments, run, wire=wire, callbacks=callbacks)
    except BaseException:
        run.take_back()  # where nothing was trained the name stays free
        raise


def run_training(
    options: TrainOptions,
    loaded: LoadedConfig,
    arguments: Sequence[str],
    run: RunDir,
    *,
    start: Callable[[Console], Start] | None = None,
    wire: Wire = OneProcess,
    callbacks: Sequence[Callback] = (),
) -> Trained:
    """Train in the folder ``run``, from nothing or from the result of ``start``.

    wire: constructor of the source of transitions; callbacks: behind those of the configuration
    """
    if options.evaluations is not None:
        check_evaluations(loaded)
    own = load_callbacks(loaded.config.base_config.callbacks, loaded.env_dir)
    called = Callbacks([*own, *callbacks])
    loaded, measured = set_up(loaded)
    device = pick_device(options.device)
    with ExitStack() as stack:
        logger = setup_logging(run.train_log, debug=options.logger_in_file)
        stack.callback(close_logging)
        console = stack.enter_context(open_console(quiet=options.quiet, logger=logger))
        for line in measured:
            console.message(line)
        for text in notices_of(options, loaded.config):
            console.warn(text)
        lock = stack.enter_context(RunLock(run.lock, notice=console.message))
        monitor_process().run_started(f"run {run.name} of {loaded.env_label}")
        stack.callback(monitor_process().run_finished)
        stop = stack.enter_context(StopRequest())
        begun = start(console) if start else None
        since = begun.saved.step if begun else 0
        session = Session(
            options, loaded, arguments, run, lock, device, console, stop, stack, wire, called, since
        )
        trainer: Trainer | None = None

        def end(error: Exception) -> None:
            logger.error("the run failed", exc_info=error)
            if trainer is not None and isinstance(error, EnvError | CallbackError):
                _save_cut_off(
                    trainer, console, "an environment" if isinstance(error, EnvError) else "a callback"
                )
            write_page(run, console)

        def end_of_hang(error: EnvError) -> None:
            end(error)
            lock.release()

        try:
            trainer, saver, runtime, faults = session.prepare(begun)
            faults.attach(end_of_hang)
            runtime.begin()
            outcome = trainer.train()
            runtime.end(stopped=not outcome.complete)
        except Exception as error:
            end(error)
            raise
        result = result_json(run, outcome, loaded.seed)
        write_outcome(loaded, run, outcome, result, console)
        show_finish(console, run, outcome, saver.summary, trainer.render_modes)
    return Trained(run, result, stop.exit_code)


def _save_cut_off(trainer: Trainer, console: Console, what: str) -> None:
    """Keep what was learned before something ended the run."""
    try:
        if step := trainer.save_cut_off():
            console.message(f"{what} ended the run; step {step:,} is saved, --resume goes on from it")
    except UserError as error:
        console.warn(error.line)


@dataclass(frozen=True)
class Session:
    """The inputs of everything before the first step."""

    options: TrainOptions
    loaded: LoadedConfig
    arguments: Sequence[str]
    run: RunDir
    lock: RunLock
    device: torch.device
    console: Console
    stop: StopRequest
    stack: ExitStack
    wire: Wire
    callbacks: Callbacks
    since: int = 0  # step that the run goes on from

    def prepare(self, start: Start | None) -> tuple[Trainer, Checkpointer, Runtime, Faults]:
        """Build all that can fail before the first step; nothing of an older state is cut back before."""
        config, run, console = self.loaded.config, self.run, self.console
        video = config.eval_config.video
        faults = Faults(console, go_on=self.stop.check_start)
        seed_globally(self.loaded.seed)
        watched = self.options.render and self.wire is not OneProcess  # nothing else happens here
        alone = config.base_config.env_type == "UNITY" and config.base_config.unity_args.editor
        eval_env = None if alone else self.env("evaluate", 1, faults, render=watched, film=video)
        runtime = self.wire(self, eval_env, faults)
        if eval_env:
            check_eval_spaces(self.loaded, runtime.scene.specs, eval_env.specs)
        film = VideoRecorders(eval_env, run.videos, warn=console.warn) if video and eval_env else no_video
        networks = run.path if start and not self.options.use_env_nn else self.loaded.env_dir
        agents, start, empty = self._agents(runtime, networks, start)
        own_env = env_file(self.loaded)
        foreign, made = self._foreign, self._made_with(agents, networks, own_env)
        training = TrainState(runtime.make_collector, agents, faults, made)
        notices = [*empty, *training.restore(start.saved)] if start else []
        if foreign is not None:
            notices += begin_with_networks(agents, foreign, start.saved if start else None)
        if start and own_env is not None and run.has_other(own_env):
            notices.append(f"the environment's file {own_env.name} has been changed since")
        modes = eval_env.render_modes if eval_env else ()
        self._write_down(runtime.scene.specs, networks, start, modes, own_env)
        manager = self._manager(start, agents)
        # Networks from elsewhere are in no checkpoint of this run yet.
        since = start.saved.step if start and foreign is not None else -1
        saver = Checkpointer(manager, training, console, self.lock.check, since=since)
        for name, agent in agents.items():
            agent.attach(restore=partial(saver.networks, name), report=faults)
        with fitting(start.saved.path if start else run.path):
            state = start.saved.state["metrics"] if start else None
            metrics = make_metrics(self.loaded, run, console, state)
        self.stack.callback(metrics.close)
        resumed = start.rows if start else []
        console.start(start_screen(self.loaded, run, runtime.scene, agents, self.device, resumed=resumed))
        self._warn(agents, notices, resumed=bool(start))
        trainer = Trainer(
            training,
            eval_env=eval_env,
            config=config,
            saver=saver,
            console=console,
            metrics=metrics,
            stop=self.stop,
            film=film,
            on_non_finite=self.on_non_finite(faults, "evaluate", most=_DROPPED_IN_EVALUATIONS),
            evaluations=self.options.evaluations,
            profile=TrainingProfile(run.path / "profile.txt", console) if self.options.profile else None,
        )
        trainer.attach(self.callbacks)
        self.callbacks.attach(Training(run.path, config, agents, training.counters, self.stop))
        return trainer, saver, runtime, faults

    def on_non_finite(
        self, faults: Faults, purpose: Literal["train", "evaluate"] = "train", *, most: float = math.inf
    ) -> OnNonFinite:
        """Return the treatment of episodes with such numbers; ``most`` of them may be dropped."""
        config = self.loaded.config
        dumps = FailureDumps(
            self.run.faults, config, env=self.run.argument, task=self.loaded.env_dir, purpose=purpose
        )
        drops = config.base_config.on_non_finite == "drop"
        return Drop(dumps, faults, most=most) if drops else Stop(dumps)

    def env(
        self,
        purpose: Literal["train", "evaluate"],
        n: int,
        faults: Faults,
        *,
        render: bool = False,
        workers: int = 0,
        film: bool = False,
    ) -> VecEnv:
        """Return environments that are closed with the session; see :func:`.assembly.make_env`."""
        unity = self.loaded.config.base_config.env_type == "UNITY"
        log = self.run.players if unity else self.run.workers if workers else None
        env = make_env(
            self.loaded,
            purpose,
            n,
            faults=faults,
            render=render,
            workers=workers,
            log=log,
            film=film,
            since=self.since,
        )
        self.stack.callback(close_env, env, self.console.warn)
        return env

    def _write_down(
        self,
        specs: Mapping[str, AgentSpec],
        networks: Path,
        start: Start | None,
        render_modes: Sequence[str],
        own_env: Path | None,
    ) -> None:
        """Write the inputs of the run; its configuration last, which makes the folder a run."""
        run, loaded = self.run, self.loaded
        plugins = plugins_of(loaded, specs, networks)
        for name in specs:
            file = nn_file(loaded.for_behaviour(name), networks)
            if isinstance(file, Path) and networks != run.path:  # not those of a plug-in
                run.copy_nn(file, f"{loaded.for_behaviour(name).run.nn}.py")
        if start:
            overrides = overlaid(loaded.overrides, config_flags(self.options))
            run.note_resumed(
                arguments=self.arguments,
                step=start.saved.step,
                overrides=overrides,
                env_file=own_env,
                plugins=plugins,
            )
        else:
            run.write_overrides(loaded.overrides)
            run.write_manifest(
                arguments=self.arguments,
                seeds={"run": loaded.seed},
                render_modes=render_modes,
                spaces={name: spec_as_json(spec) for name, spec in specs.items()},
                env_file=own_env,
                plugins=plugins,
            )
        if not start or start.changes:
            run.write_config(dump_config(loaded))

    def _agents(
        self, runtime: Runtime, networks: Path, start: Start | None
    ) -> tuple[dict[str, Agent], Start | None, list[str]]:
        """Return agents with a checkpoint's replays, that checkpoint, and a line for each missing replay.

        Damage of a replay shows only while it is loaded. The checkpoint before then begins with new agents.
        """
        while True:
            agents = make_agents(
                self.loaded,
                runtime.scene.specs,
                networks,
                self.device,
                memory=MemoryBudget(),
                greedy=self.options.disable_sample,
                make_replay=runtime.make_replay,
            )
            if start is None:
                return agents, None, []
            foreign = self._foreign
            try:
                if foreign is not None:
                    return agents, start, load_foreign_replays(agents, foreign, start.saved, self.run.replay)
                return agents, start, load_replays(agents, start.saved, self.run.replay)
            except DamagedError as error:
                if start.older is None or (foreign is not None and foreign.replay is not None):
                    raise  # an older checkpoint would change nothing about a replay from elsewhere
                self.console.warn(passed_over(error))
                start = replace(start, saved=next(start.older))

    @property
    def _foreign(self) -> ForeignNetworks | None:
        """Networks of ``--networks``."""
        folder = self.options.networks
        keep = self.loaded.config.base_config.evolver_keep
        return None if folder is None else ForeignNetworks(Path(folder), keep)

    def _made_with(
        self, agents: Mapping[str, Agent], networks: Path, own_env: Path | None
    ) -> Mapping[str, object]:
        """Return versions and code, without the run's own networks and the environment's own file."""
        apart = {f"{self.loaded.for_behaviour(name).run.nn}.py" for name in agents}
        apart |= {own_env.name} if own_env else set()
        return made_with(self.loaded.env_dir, apart, plugins_of(self.loaded, agents, networks))

    def _manager(self, start: Start | None, agents: Mapping[str, Agent]) -> CheckpointManager:
        kept = self.loaded.config.checkpoint_config
        manager = CheckpointManager(
            self.run.checkpoints,
            self.run.replay,
            keep=kept.keep,
            best=kept.best,
            milestones=kept.milestones,
            replay=kept_replays(agents, kept.replay),
            warn=self.console.warn,
        )
        if start:
            manager.resume(start.saved.step)
        return manager

    def _warn(self, agents: Mapping[str, Agent], notices: Sequence[str], *, resumed: bool) -> None:
        for text in (text for agent in agents.values() for text in agent.notices):
            self.console.warn(text)
        if self.options.disable_sample:
            self.console.warn("--disable_sample while training: no exploration, and no importance sampling")
        for text in notices:
            self.console.warn(f"resumed, not bit-exact: {text}") if resumed else self.console.message(text)
        if resumed and not notices:
            self.console.message("resumed exactly: everything goes on as if it had never stopped")
