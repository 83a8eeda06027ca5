"""From the command line to what is to run on the cluster. What is wrong is told before Ray is started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from algorithm.config.cli import TrainOptions
from algorithm.config.cli_ds import DistributedOptions
from algorithm.config.loader import load_config, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.config.schema import DISTRIBUTED_DEFAULTS, Config, NetConfig
from algorithm.runs.names import expand_name
from algorithm.runs.rundir import MODELS, RunDir
from ds.cluster.connect import PROJECT
from ds.cluster.plan import MainCommands, Plan, make_secrets


def make_plan(options: DistributedOptions, folder: EnvFolder) -> Plan:
    """What the command line asks for. Raises ConfigError, UsageError, StorageError."""
    train, asked = options.train, options.cluster
    assert asked is not None
    assert asked.num_actors is not None
    name, config = _resumed(options, folder) if train.resume else _new(options, folder)
    own_secrets = config.net_config.secrets != NetConfig().secrets
    return Plan(
        label=folder.label,
        name=name,
        argument=train.env,
        folder=Path.cwd(),
        commands=_commands(options, name),
        actors=asked.num_actors,
        learner_cpus=asked.learner_cpus,
        actor_cpus=asked.actor_cpus,
        port=options.learner_port or 0,
        resume=train.resume,
        secrets=None if own_secrets else make_secrets,
    )


def _new(options: DistributedOptions, folder: EnvFolder) -> tuple[str, Config]:
    train = options.train
    loaded = load_config(
        train.env,
        train.config,
        train.overrides,
        options.flags,
        train.seed,
        defaults=DISTRIBUTED_DEFAULTS,
        require_runnable=True,
    )
    name = expand_name(loaded.config.base_config.name, MODELS.absolute() / folder.label)
    RunDir.check_free(folder.label, name, argument=train.env)
    return name, loaded.config


def _resumed(options: DistributedOptions, folder: EnvFolder) -> tuple[str, Config]:
    train = options.train
    if train.name is None:
        run = RunDir.newest(folder.label, argument=train.env)
    else:
        run = RunDir.open(folder.label, train.name, argument=train.env)
    loaded = load_config_file(run.config, train.overrides, options.flags, train.seed, env=folder)
    return run.name, loaded.config


def _commands(options: DistributedOptions, name: str) -> MainCommands:
    train = options.train
    changes = tuple(word for override in train.overrides for word in ("-o", override))
    given = {
        "--config": train.config,
        "--agents": train.agents,
        "--env_args": None if train.env_args is None else json.dumps(dict(train.env_args)),
        "--nn": train.nn,
    }
    common = (*_words(given), *changes)
    kept = (*_words({"--device": train.device}), *_switches(options))
    return MainCommands(
        script=PROJECT / "main_ds.py",
        env=train.env,
        name=name,
        common=common,
        learner_flags=_words(
            {"--seed": train.seed, "--max_iter": train.max_iter, "--max_step": train.max_step}
        ),
        actor_flags=_switches(options),
        kept=(*kept, *common) if train.resume else kept,
    )


def _switches(options: DistributedOptions) -> tuple[str, ...]:
    train: TrainOptions = options.train
    given = {
        "--insecure": options.insecure,
        "--use_env_nn": train.use_env_nn,
        "--logger_in_file": train.logger_in_file,
        "--quiet": train.quiet,
        "--debug": train.debug,
    }
    return tuple(flag for flag, on in given.items() if on)


def _words(given: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(word for flag, value in given.items() if value is not None for word in (flag, str(value)))
