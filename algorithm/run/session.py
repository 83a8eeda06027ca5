"""A whole run from its options: training, or playing with what training saved."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from algorithm.config.cli import TrainOptions
from algorithm.config.loader import LoadedConfig, dump_config
from algorithm.config.schema import Config
from algorithm.env.base import VecEnv
from algorithm.env.registry import make_vec_env
from algorithm.errors import StorageError, UsageError
from algorithm.run.agent import Agent, pick_device
from algorithm.run.checkpoint import load_checkpoint
from algorithm.run.console import Console, close_logging, open_console, setup_logging
from algorithm.run.faults import Faults
from algorithm.run.keeper import Keeper
from algorithm.run.memory import MemoryBudget
from algorithm.run.metrics import MetricsLogger
from algorithm.run.names import behaviour_level
from algorithm.run.report import plot_curve, read_series
from algorithm.run.rundir import RunDir
from algorithm.run.screen import finish_screen, result_json, start_screen
from algorithm.run.seeding import episode_seeds
from algorithm.run.signals import StopRequest
from algorithm.run.trainer import Trainer


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
) -> VecEnv:
    """The environments of a run for one purpose, seeded for it.

    workers: processes for them, 0 for none but this one; log: folder for what those print
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
    """Train one run to its end.

    arguments: the command line, for the manifest; name: of the run, instead of ``base_config.name``.
    """
    if options.ckpt is not None:
        raise UsageError(
            "--ckpt chooses what --run plays with",
            why="going on with training from a checkpoint is not available in this version",
            fix="add --run, or leave --ckpt out",
        )
    config = loaded.config
    torch.set_num_threads(config.sac_config.threads)
    device = pick_device(options.device)
    run = RunDir.create(loaded.env_label, name or config.base_config.name, argument=options.env)
    logger = setup_logging(run.train_log, debug=options.logger_in_file)
    with ExitStack() as stack:
        stack.callback(close_logging)
        console = stack.enter_context(open_console(quiet=options.quiet, logger=logger))
        stop = stack.enter_context(StopRequest())
        try:
            trainer = _prepare(options, loaded, arguments, run, console, stop, device, stack)
        except BaseException:
            shutil.rmtree(run.path, ignore_errors=True)  # nothing was trained: the name stays free
            raise
        try:
            outcome = trainer.train()
        except Exception:
            logger.exception("the run failed")
            raise
        result = result_json(run, outcome, loaded.seed)
        run.write_result(result)
        if outcome.last_eval:
            series = read_series(
                run.metrics_csv, f"evaluation, mean of {config.eval_config.episodes} episodes"
            )
            plot_curve(run.plots / "return.png", [series], title=f"{loaded.env_label}, {run.name}")
        console.finish(*finish_screen(run, outcome))
    return Trained(run, result, stop.exit_code)


def _prepare(
    options: TrainOptions,
    loaded: LoadedConfig,
    arguments: Sequence[str],
    run: RunDir,
    console: Console,
    stop: StopRequest,
    device: torch.device,
    stack: ExitStack,
) -> Trainer:
    """Everything that can fail before the first step."""
    config = loaded.config
    base, faults = config.base_config, Faults(console)
    env = make_env(
        config,
        "train",
        base.n_envs,
        faults=faults,
        render=options.render,
        workers=base.workers,
        log=run.workers,
    )
    stack.callback(env.close)
    eval_env = make_env(config, "evaluate", 1, faults=faults)
    stack.callback(eval_env.close)
    agents = make_agents(
        loaded, env, loaded.env_dir, device, memory=MemoryBudget(), greedy=options.disable_sample
    )
    for name in env.specs:
        if (file := nn_file(loaded.for_behaviour(name), loaded.env_dir)) is not None:
            run.copy_nn(file)
    run.write_overrides(loaded.overrides)
    run.write_manifest(arguments=arguments, seeds={"run": loaded.seed})
    run.write_config(dump_config(loaded))
    metrics = MetricsLogger(run.log, run.metrics_csv, run.metrics_jsonl)
    stack.callback(metrics.close)
    console.start(start_screen(loaded, run, env, agents, device))
    for notice in (*options.notices, *(text for agent in agents.values() for text in agent.notices)):
        console.warn(notice)
    if options.disable_sample:
        console.warn("--disable_sample while training: no exploration, and no importance sampling")
    kept = config.checkpoint_config
    return Trainer(
        env=env,
        eval_env=eval_env,
        agents=agents,
        config=config,
        keeper=Keeper(run.checkpoints, keep=kept.keep, best=kept.best, warn=console.warn),
        faults=faults,
        console=console,
        metrics=metrics,
        stop=stop,
    )
