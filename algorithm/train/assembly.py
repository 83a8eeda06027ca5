"""Environments, agents and metrics of a run, made from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch

from algorithm.agents.base import Agent
from algorithm.agents.registry import family
from algorithm.agents.roles import AgentInputs, MakeReplay
from algorithm.config.loader import LoadedConfig, plain_config
from algorithm.config.schema import Config
from algorithm.core.console import Console
from algorithm.core.errors import RUN_BLOCK, EnvError, ModelError, StorageError, UsageError
from algorithm.core.plugins import ENVS, EXTENSIONS, NETWORKS, Plugin, find, installed, unknown
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import AgentSpec
from algorithm.demos.sources import load_demonstrations
from algorithm.env.base import VecEnv
from algorithm.env.config import without_team
from algorithm.env.env_id import extend_path, resolve_env_id, source_file, use_folder
from algorithm.env.gym import reward_threshold
from algorithm.env.registry import PoolOptions, make_vec_env
from algorithm.env.unity.seat import UnityOptions
from algorithm.env.wrappers import resolve_wrappers
from algorithm.evaluation.video import video_path
from algorithm.experience.faults import Faults
from algorithm.nn.loader import NnFile
from algorithm.nn.process import fastest, measure_threads, set_matmul_precision, set_up_process
from algorithm.replay.budget import MemoryBudget
from algorithm.replay.buffer import ReplayBuffer
from algorithm.runs.checkpoints.checkpoint import Checkpoint
from algorithm.runs.logs.metrics import MetricsLogger
from algorithm.runs.logs.wandb_sink import WandbSink
from algorithm.runs.names import behaviour_level
from algorithm.runs.rundir import RunDir


def make_env(
    loaded: LoadedConfig,
    purpose: Literal["train", "evaluate"],
    n: int,
    *,
    faults: Faults,
    render: bool = False,
    workers: int = 0,
    log: Path | None = None,
    film: bool = False,
    watched: bool = False,
    seed: int | None = None,
    since: int = 0,
) -> VecEnv:
    """Return the environments of a run for one purpose, seeded for it.

    workers: processes for them, 0 for none but this one; log: folder for what those print
    film: the first of them can record pictures
    watched: a person watches a Unity player, in real time
    seed: instead of the run's own; since: step that a run goes on from, for other seeds of Unity's players
    """
    config = loaded.config
    base = config.base_config
    seed = loaded.seed if seed is None else seed
    return make_vec_env(
        base.env_type,
        base.env_name,
        folder=loaded.env_dir,
        env_args=base.env_args,
        n=n,
        seed_of=episode_seeds(seed, purpose),
        options=config.reset_config,
        render=render,
        video=film,
        wrappers=config.wrappers_for(purpose),
        pool=PoolOptions(
            workers=workers,
            timeout=base.env_timeout,
            restarts=base.env_restarts,
            on_fault=faults,
            on_hang=faults.hangs,
            waiting=faults.waiting,
            log=log,
            unity=UnityOptions(
                args=base.unity_args,
                behaviours=tuple(loaded.behaviours),
                purpose=purpose,
                watched=watched,
                since=since,
            ),
        ),
    )


def check_eval_spaces(
    loaded: LoadedConfig, train: Mapping[str, AgentSpec], evaluation: Mapping[str, AgentSpec]
) -> None:
    """Raise unless agents see and do the same in evaluations as in the training.

    Raises UsageError where evaluations have wrappers of their own, else EnvError.
    """
    for name in {**train, **evaluation}:
        spec, other = train.get(name), evaluation.get(name)
        if spec == other:
            continue
        what = "evaluations have other observations or actions than the training"
        why = f"{name!r} is {other} there, and {spec} in the training"
        if loaded.config.eval_config.wrappers is not None:
            raise UsageError(
                what,
                where="eval_config.wrappers",
                why=why,
                fix="repeat those of base_config.wrappers that change observations or actions",
            )
        raise EnvError(what, why=why, fix="every start of the environment has to bring the same spaces")


def check_evaluations(loaded: LoadedConfig) -> None:
    """Raise UsageError for ``--evaluations`` where there are none on the way."""
    if loaded.config.eval_config.per_step <= 0:
        raise UsageError(
            "--evaluations needs evaluations on the way",
            where=f"{loaded.source}: eval_config.per_step",
            why="they are switched off",
            fix="-o eval_config.per_step=2000, or leave --evaluations out",
        )


def close_env(env: VecEnv, warn: Callable[[str], None]) -> None:
    """Release simulators; a failure is only warned of, since the work with them is done."""
    try:
        env.close()
    except EnvError as error:
        warn(error.line)


def set_up(loaded: LoadedConfig) -> tuple[LoadedConfig, list[str]]:
    """Give torch its threads. Return the configuration as a run keeps it, and lines on what was measured.

    ``threads: auto`` has become a number, ``stop_at_return: auto`` a number or null, and ``compile: auto`` is
    off where that is not worth it: a run that is prolonged goes on as it began.
    """
    said = []
    if loaded.config.base_config.stop_at_return == "auto":
        solved = _solved_at(loaded)
        loaded = decided(loaded, "base_config", lambda _: {"stop_at_return": solved})
    loaded = decided(
        loaded,
        RUN_BLOCK,
        lambda config: (
            {"compile": "off"} if config.run.compile == "auto" and not config.worth_compiling else {}
        ),
    )
    if loaded.config.run.threads == "auto":
        seconds = measure_threads()
        number = fastest(seconds)
        loaded = decided(loaded, RUN_BLOCK, lambda _: {"threads": number})
        each = ", ".join(f"{1e3 * taken:.1f} ms with {n}" for n, taken in seconds.items())
        said = [f"threads: {loaded.threads}, measured: {each}"]
    set_up_process(loaded.threads)
    return loaded, said


def _solved_at(loaded: LoadedConfig) -> float | None:
    """Return the environment's own threshold; None without one, and without evaluations on the way."""
    config, folder = loaded.config, loaded.env_dir
    if config.base_config.env_type != "GYM" or config.eval_config.per_step <= 0:
        return None
    wrappers = resolve_wrappers(config.wrappers_for("evaluate"), folder)
    return reward_threshold(resolve_env_id(config.base_config.env_name, folder), wrappers)


def decided(
    loaded: LoadedConfig, block: str, decide: Callable[[Config], Mapping[str, object]]
) -> LoadedConfig:
    """Return the configuration with keys of a block as decided for all and for each behaviour."""

    def changed(config: Config) -> Config:
        own = getattr(config, block).model_copy(update=dict(decide(config)))
        return config.model_copy(update={block: own})

    behaviours = {name: changed(config) for name, config in loaded.behaviours.items()}
    names = loaded.decided | {f"{block}.{key}" for key in decide(loaded.config)}
    return replace(loaded, config=changed(loaded.config), behaviours=behaviours, decided=names)


def make_agents(
    loaded: LoadedConfig,
    specs: Mapping[str, AgentSpec],
    nn_folder: Path,
    device: torch.device,
    *,
    memory: MemoryBudget,
    greedy: bool = False,
    make_replay: MakeReplay = ReplayBuffer,
    learning: bool = True,
) -> dict[str, Agent]:
    """Return one agent per behaviour of the environment, each from its own merged configuration.

    learning: read the demonstrations, which an agent that only plays does not need
    Raises UsageError for a behaviour that does not exist, for demonstrations that cannot be used, and for
    replays that do not fit into ``memory``.
    """
    check_behaviours(loaded, specs)
    agents: dict[str, Agent] = {}
    for name, spec in specs.items():
        config = loaded.for_behaviour(name)
        networks = nn_file(config, nn_folder)
        demos = load_demonstrations(config.demonstrations, spec, name, loaded.env_dir) if learning else None
        if isinstance(networks, Path):  # a learner may have made no environment
            extend_path(loaded.env_dir)
        use_folder(loaded.env_dir, *(word for entry in config.run.extensions for word in entry))
        inputs = AgentInputs(
            spec,
            config,
            nn_file=networks,
            behaviour=name,
            seed=loaded.seed,
            device=device,
            memory=memory,
            greedy=greedy,
            make_replay=make_replay,
            demonstrations=demos,
        )
        agents[name] = family(config).make_agent(inputs)
    modules = [module for agent in agents.values() for module in agent.acting_parts().values()]
    set_matmul_precision(loaded.config.run.matmul_precision, modules, device)
    return agents


def check_behaviours(loaded: LoadedConfig, specs: Mapping[str, AgentSpec]) -> None:
    """Raise UsageError if ``ma_config`` names a behaviour that the environment does not have."""
    unknown = sorted(set(loaded.behaviours).difference(specs, map(without_team, specs)))
    if unknown:
        raise UsageError(
            f"ma_config names {', '.join(map(repr, unknown))}, which the environment does not have",
            where=loaded.file or loaded.source,
            why=f"its behaviours are {', '.join(map(repr, specs))}",
            fix="rename or remove that part of ma_config",
        )


def make_metrics(
    loaded: LoadedConfig, run: RunDir, console: Console, state: Mapping[str, Any] | None
) -> MetricsLogger:
    """Return the log of a run's metrics, which goes to W&B as well if the configuration names a project.

    state: of the log that it goes on from. Raises StorageError as `MetricsLogger`.
    """
    config, upload = loaded.config.wandb_config, None
    if config.project is not None:
        settings = {key: value for key, value in plain_config(loaded).items() if key != "net_config"}
        upload = WandbSink(
            config,
            folder=run.wandb,
            name=run.name,
            settings=settings,  # addresses are nothing for others
            film=partial(video_path, run.videos),
            plots=run.plots,
            say=console.message,
            warn=console.warn,
        )
    return MetricsLogger(
        run.log, run.metrics_csv, run.metrics_jsonl, warn=console.warn, state=state, upload=upload
    )


def env_file(loaded: LoadedConfig) -> Path | None:
    """Return the file of the task's own environment; None for one imported by its module or id."""
    if loaded.config.base_config.env_type == "UNITY":
        return None
    return source_file(resolve_env_id(loaded.config.base_config.env_name, loaded.env_dir))


def nn_file(config: Config, folder: Path) -> NnFile | None:
    """Return the task's networks; None for ``nn: null``, or if the default name has no file.

    None, too, for a family without networks: nothing of the file would be used.

    A file of that name in ``folder``, that of the task or of the run, goes before a plug-in. It must lie
    there also after resolving symbolic links: ModelError for any other, since it will be executed. UsageError
    for a name that neither has, and for a plug-in that cannot be used.
    """
    if not family(config).networks:
        return None
    name = config.run.nn
    if name is None:
        return None
    file = folder / f"{name}.py"
    try:
        inside = file.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a circle of links, a zero byte in the name
        inside = False
    if not inside:
        raise ModelError(
            "networks are taken only from the task's folder, or the run's own",
            where=f"{RUN_BLOCK}.nn: {name!r}",
            why=f"that is a file outside of {folder}, and it would be executed",
            fix="put a file there and name it; it may import what it needs from an installed package",
        )
    return file if file.exists() else _nn_of_plugin(name, folder)


def _nn_of_plugin(name: str, folder: Path) -> ModuleType | None:
    if name not in (*NETWORKS.own, *installed(NETWORKS)):
        files = [file.relative_to(folder).with_suffix("").as_posix() for file in sorted(folder.glob("*.py"))]
        raise unknown(
            NETWORKS,
            name,
            files=files,
            why=f"there is no {name}.py in {folder}, and no installed package has networks of that name",
        )
    plugin = find(NETWORKS, name)
    module = plugin.load() if plugin else None
    if plugin and not isinstance(module, ModuleType):
        fix = "its entry point has to name a module, such as my_package.nn"
        raise plugin.error("is no module", f"{plugin.value} is {module!r}", fix)
    return module


def plugins_of(loaded: LoadedConfig, names: Collection[str], folder: Path) -> list[Plugin]:
    """Return the plug-ins that a run uses, once each.

    names: of its behaviours; folder: with its networks
    """
    found = [find(ENVS, loaded.config.base_config.env_type)]
    for config in map(loaded.for_behaviour, names):
        found += [find(EXTENSIONS, name) for entry in config.run.extensions for name in entry]
        if isinstance(nn_file(config, folder), ModuleType):
            found.append(find(NETWORKS, str(config.run.nn)))
    return list(dict.fromkeys(one for one in found if one is not None))


def load_networks_into(agents: Mapping[str, Agent], saved: Checkpoint) -> None:
    """Load the networks of a checkpoint into agents.

    Raises StorageError if it was made by other networks.
    """
    for name, agent in agents.items():
        level = behaviour_level(name)
        prefix = f"{level}/" if level else ""
        try:
            agent.load_model(saved.tensors[f"{prefix}model"])
        except (KeyError, ValueError) as error:
            raise StorageError(
                "the checkpoint does not fit this agent",
                where=saved.path,
                why=str(error) if isinstance(error, ValueError) else f"it has no networks for {name!r}",
                fix="use the networks and the configuration it was trained with",
            ) from error
