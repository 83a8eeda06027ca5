"""A whole run from its options: training, or playing with what training saved."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from algorithm.config.changes import Change, table
from algorithm.config.cli import TrainOptions
from algorithm.config.loader import LoadedConfig, dump_config
from algorithm.config.schema import Config
from algorithm.env.base import VecEnv
from algorithm.env.registry import make_vec_env
from algorithm.errors import StorageError, UsageError
from algorithm.run.agent import Agent, pick_device
from algorithm.run.checkpoints.checkpoint import Checkpoint, load_checkpoint
from algorithm.run.checkpoints.keeper import Keeper
from algorithm.run.console import Console, Rows, close_logging, open_console, setup_logging
from algorithm.run.faults import Faults
from algorithm.run.lock import RunLock
from algorithm.run.logs.metrics import MetricsLogger
from algorithm.run.memory import MemoryBudget
from algorithm.run.names import behaviour_level
from algorithm.run.non_finite import Drop, OnNonFinite, Stop
from algorithm.run.pages.curves import plot_curve, read_series
from algorithm.run.pages.report import write_report
from algorithm.run.playing.film import Films, no_films
from algorithm.run.randomness import seed_globally
from algorithm.run.repro import Repros
from algorithm.run.rundir import RunDir
from algorithm.run.saver import Saver
from algorithm.run.screen import finish_screen, result_json, start_screen
from algorithm.run.seeding import episode_seeds
from algorithm.run.signals import StopRequest
from algorithm.run.trainer import Outcome, Trainer
from algorithm.run.training import Training

_DROPPED_IN_EVALUATIONS = 100  # episodes; an evaluation waits for whole ones


@dataclass(frozen=True)
class Trained:
    """How a training run ended."""

    run: RunDir
    result: Mapping[str, object]
    exit_code: int


def make_env(
    config: Config,
    purpose: Literal["train", "evaluate"],
    n: int,
    *,
    faults: Faults,
    render: bool = False,
    workers: int = 0,
    log: Path | None = None,
    film: bool = False,
) -> VecEnv:
    """The environments of a run for one purpose, seeded for it.

    workers: processes for them, 0 for none but this one; log: folder for what those print
    film: the first of them can be asked for pictures
    """
    base = config.base_config
    seed = config.sac_config.seed
    assert seed is not None, "the loader sets the seed"
    return make_vec_env(
        base.env_type,
        base.env_name,
        env_args=base.env_args,
        n=n,
        seed_of=episode_seeds(seed, purpose),
        options=config.reset_config,
        render=render,
        wrappers=base.wrappers,
        workers=workers,
        timeout=base.env_timeout,
        restarts=base.env_restarts,
        on_fault=faults,
        log=log,
        film=film,
    )


def make_agents(
    loaded: LoadedConfig,
    env: VecEnv,
    nn_folder: Path,
    device: torch.device,
    *,
    memory: MemoryBudget,
    greedy: bool = False,
) -> dict[str, Agent]:
    """One agent per behaviour of the environment, each from its own merged configuration.

    Raises UsageError for a behaviour that does not exist, and for replays that do not fit into ``memory``.
    """
    unknown = sorted(set(loaded.behaviours) - set(env.specs))
    if unknown:
        raise UsageError(
            f"ma_config names {', '.join(map(repr, unknown))}, which the environment does not have",
            where=str(loaded.file),
            why=f"its behaviours are {', '.join(map(repr, env.specs))}",
            fix="rename or remove that part of ma_config",
        )
    return {
        name: Agent(
            spec,
            loaded.for_behaviour(name),
            nn_file=nn_file(loaded.for_behaviour(name), nn_folder),
            behaviour=name,
            seed=loaded.seed,
            device=device,
            memory=memory,
            greedy=greedy,
        )
        for name, spec in env.specs.items()
    }


def nn_file(config: Config, folder: Path) -> Path | None:
    """The file with the task's networks; None if it keeps the default name and there is no such file."""
    name = config.sac_config.nn
    file = folder / f"{name}.py"
    return None if name == "nn" and not file.exists() else file


def load_networks_into(agents: Mapping[str, Agent], checkpoint: Path) -> int:
    """Give agents the networks of a checkpoint's folder; returns its step.

    Raises StorageError if it was made by other networks.
    """
    saved = load_checkpoint(checkpoint)
    for name, agent in agents.items():
        level = behaviour_level(name)
        prefix = f"{level}/" if level else ""
        try:
            agent.sac.load_model(saved.tensors[f"{prefix}model"])
        except (KeyError, ValueError) as error:
            raise StorageError(
                "the checkpoint does not fit this agent",
                where=checkpoint,
                why=str(error) if isinstance(error, ValueError) else f"it has no networks for {name!r}",
                fix="use the networks and the configuration it was trained with",
            ) from error
    return saved.step


def train(
    options: TrainOptions, loaded: LoadedConfig, arguments: Sequence[str], *, name: str | None = None
) -> Trained:
    """Train one new run to its end.

    arguments: the command line, for the manifest; name: of the run, instead of ``base_config.name``.
    """
    if options.ckpt is not None:
        raise UsageError(
            "--ckpt chooses what to go on from, or what to play with",
            why="a new training starts from nothing",
            fix="add --resume, --run or --eval N, or leave --ckpt out",
        )
    run = RunDir.create(loaded.env_label, name or loaded.config.base_config.name, argument=options.env)
    try:
        return conduct(options, loaded, arguments, run)
    except BaseException:
        if not run.config.exists():
            shutil.rmtree(run.path, ignore_errors=True)  # nothing was trained: the name stays free
        raise


def conduct(
    options: TrainOptions,
    loaded: LoadedConfig,
    arguments: Sequence[str],
    run: RunDir,
    *,
    start: Callable[[Console], Start] | None = None,
) -> Trained:
    """Train in the folder ``run``, from nothing or from what ``start`` finds there."""
    torch.set_num_threads(loaded.config.sac_config.threads)
    device = pick_device(options.device)
    with ExitStack() as stack:
        logger = setup_logging(run.train_log, debug=options.logger_in_file)
        stack.callback(close_logging)
        console = stack.enter_context(open_console(quiet=options.quiet, logger=logger))
        stack.enter_context(RunLock(run.lock, notice=console.message))
        stop = stack.enter_context(StopRequest())
        begun = start(console) if start else None
        session = _Session(options, loaded, arguments, run, device, console, stop, stack)
        try:
            trainer, saver = session.prepare(begun)
            outcome = trainer.train()
        except Exception:
            logger.exception("the run failed")
            _write_page(run, console)
            raise
        result = result_json(run, outcome, loaded.seed)
        _write_outcome(loaded, run, outcome, result, console)
        console.finish(*finish_screen(run, outcome, saver.summary))
    return Trained(run, result, stop.exit_code)


def _write_outcome(
    loaded: LoadedConfig, run: RunDir, outcome: Outcome, result: Mapping[str, object], console: Console
) -> None:
    """What is there to look at; a disk that is full now takes nothing of what was learned."""
    try:
        run.write_result(result)
        if outcome.last_eval:
            label = f"evaluation, mean of {loaded.config.eval_config.episodes} episodes"
            series = read_series(run.metrics_csv, label)
            plot_curve(run.plots / "return.png", [series], title=f"{loaded.env_label}, {run.name}")
    except StorageError as error:
        console.warn(error.line)
    _write_page(run, console)


def _write_page(run: RunDir, console: Console) -> None:
    try:
        write_report(run)
    except StorageError as error:
        console.warn(error.line)


@dataclass(frozen=True)
class Start:
    """A checkpoint to go on from, which has been read and verified."""

    folder: Path
    saved: Checkpoint
    changes: Sequence[Change]  # of the configuration since

    @property
    def rows(self) -> Rows:
        """For the start screen."""
        return [("from", f"step {self.saved.step:,}"), *table(self.changes)]


@dataclass(frozen=True)
class _Session:
    """What everything before the first step is made from."""

    options: TrainOptions
    loaded: LoadedConfig
    arguments: Sequence[str]
    run: RunDir
    device: torch.device
    console: Console
    stop: StopRequest
    stack: ExitStack

    def prepare(self, start: Start | None) -> tuple[Trainer, Saver]:
        """Everything that can fail before the first step; nothing of an older state is cut back before."""
        config, run, console = self.loaded.config, self.run, self.console
        base, video = config.base_config, config.eval_config.video
        faults = Faults(console)
        seed_globally(self.loaded.seed)
        env = self._env("train", base.n_envs, faults, render=self.options.render, workers=base.workers)
        eval_env = self._env("evaluate", 1, faults, film=video)
        film = Films(eval_env, run.videos, warn=console.warn) if video else no_films
        networks = run.path if start and not self.options.use_env_nn else self.loaded.env_dir
        agents = make_agents(
            self.loaded,
            env,
            networks,
            self.device,
            memory=MemoryBudget(),
            greedy=self.options.disable_sample,
        )
        training = Training(env, agents, config, faults, self._on_non_finite(faults))
        notices = training.restore(start.saved, start.folder, run.replay) if start else []
        self._write_down(agents, networks, start)
        keeper = self._keeper(start)
        saver = Saver(keeper, training, console)
        for name, agent in agents.items():
            agent.guard.attach(restore=partial(saver.networks, name), report=faults)
        metrics = MetricsLogger(
            run.log,
            run.metrics_csv,
            run.metrics_jsonl,
            warn=console.warn,
            state=start.saved.state["metrics"] if start else None,
        )
        self.stack.callback(metrics.close)
        resumed = start.rows if start else []
        console.start(start_screen(self.loaded, run, env, agents, self.device, resumed=resumed))
        self._warn(agents, notices, exact=bool(start) and not notices)
        trainer = Trainer(
            training,
            eval_env=eval_env,
            config=config,
            saver=saver,
            console=console,
            metrics=metrics,
            stop=self.stop,
            film=film,
            on_non_finite=self._on_non_finite(faults, most=_DROPPED_IN_EVALUATIONS),
        )
        return trainer, saver

    def _on_non_finite(self, faults: Faults, *, most: float = math.inf) -> OnNonFinite:
        config = self.loaded.config
        repros = Repros(self.run.faults, config)
        drops = config.base_config.on_non_finite == "drop"
        return Drop(repros, faults, most=most) if drops else Stop(repros)

    def _env(
        self,
        purpose: Literal["train", "evaluate"],
        n: int,
        faults: Faults,
        *,
        render: bool = False,
        workers: int = 0,
        film: bool = False,
    ) -> VecEnv:
        log = self.run.workers if workers else None
        env = make_env(
            self.loaded.config, purpose, n, faults=faults, render=render, workers=workers, log=log, film=film
        )
        self.stack.callback(env.close)
        return env

    def _write_down(self, agents: Mapping[str, Agent], networks: Path, start: Start | None) -> None:
        """What the run is made from; its configuration last, which makes the folder a run."""
        run, loaded = self.run, self.loaded
        for name in agents:
            file = nn_file(loaded.for_behaviour(name), networks)
            if file is not None and networks != run.path:
                run.copy_nn(file)
        if start:
            run.note_resumed(arguments=self.arguments, step=start.saved.step, overrides=loaded.overrides)
        else:
            run.write_overrides(loaded.overrides)
            run.write_manifest(arguments=self.arguments, seeds={"run": loaded.seed})
        if not start or start.changes:
            run.write_config(dump_config(loaded))

    def _keeper(self, start: Start | None) -> Keeper:
        kept = self.loaded.config.checkpoint_config
        keeper = Keeper(
            self.run.checkpoints,
            self.run.replay,
            keep=kept.keep,
            best=kept.best,
            milestones=kept.milestones,
            replay=kept.replay,
            warn=self.console.warn,
        )
        if start:
            keeper.resume(start.saved.step)
        return keeper

    def _warn(self, agents: Mapping[str, Agent], notices: Sequence[str], *, exact: bool) -> None:
        warn = self.console.warn
        for text in (*self.options.notices, *(text for agent in agents.values() for text in agent.notices)):
            warn(text)
        if self.options.disable_sample:
            warn("--disable_sample while training: no exploration, and no importance sampling")
        for text in notices:
            warn(f"resumed, not bit-exact: {text}")
        if exact:
            self.console.message("resumed exactly: everything goes on as if it had never stopped")
