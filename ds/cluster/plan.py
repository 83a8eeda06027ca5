"""Plan of a cluster: options of learner and actors, and where their files lie."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from algorithm.app.cli.ds import DistributedOptions
from algorithm.config.loader import load_config, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.config.schema import DISTRIBUTED_DEFAULTS, Config, NetConfig
from algorithm.store.names import expand_name
from algorithm.store.rundir import RunDir
from ds.net.security import TOKEN, is_loopback

PROJECT = Path(__file__).resolve().parents[2]
"""Folder of the packages, and in a checkout of ``main_ds.py``."""

_EVERYBODY = ("directory", "use_env_nn", "logger_in_file", "quiet", "debug")
_TASK = ("config", "algorithm", "preset", "agents", "nn", "env_args", "overrides")
_LEARNER: tuple[str, ...] = (*_EVERYBODY, "device")
_LIMITS = ("max_iter", "max_step")
"""Fields of the command's own options that a process gets. A learner that goes on with its run has no others
than ``_LEARNER``, for the run's own configuration counts then, unless the command itself resumes the run."""


@dataclass(kw_only=True)
class ClusterPlan:
    """A training on a cluster: a learner and its actors, as a command describes them.

    options: the command's.
    label, name: the run's, see ``RunDir``; nothing is left to expand.
    folder:  where all processes start; that of all runs is below it or absolute.
    makes_secrets: the user has not seen to token and certificates.

    adopt: the run may be there already, from a command that has ended; then its state decides.
    """

    options: DistributedOptions
    label: str
    name: str
    folder: Path
    makes_secrets: bool = True
    adopt: ClassVar[bool] = False

    @property
    def prefix(self) -> str:
        """Beginning of the names of its processes, where there are other learners."""
        return "" if self.options.cluster.num_learners == 1 else f"{self.name} "

    @property
    def run(self) -> str:
        """The run's folder, below ``folder`` or absolute."""
        return str(self.options.train.directory / self.label / self.name)

    @property
    def module(self) -> str:
        """Module whose ``perform`` carries out the options of a process, and returns an exit code."""
        return "ds.command"

    def learner(self, host: str, port: int, *, resume: bool, step: int) -> Any:  # noqa: ANN401 - its module's
        """Return the options of a learner that listens there; port 0: at one that is free.

        resume: go on with the run; step: of its newest checkpoint, -1 without one
        """
        fields = _LEARNER
        if self.options.train.resume or not resume:
            fields += (*_TASK, *_LIMITS)
        if not resume:
            fields += ("seed",)
        made = self.options.of_role("learner", host, port, fields)
        return replace(made, train=replace(made.train, name=self.name, resume=resume))

    def actor(self, host: str, port: int) -> DistributedOptions:
        """Return the options of an actor for the learner there."""
        return self.options.of_role("actor", host, port, (*_EVERYBODY, *_TASK))

    def secrets_at(self, host: str, *names: str) -> Mapping[str, bytes]:
        """Return files by name, all or ``names``, for a learner at ``host``; none on the loopback."""
        if not self.makes_secrets or is_loopback(host):
            return {}
        files = make_secrets(host)
        return {name: files[name] for name in names or files}


@cache
def make_secrets(host: str) -> Mapping[str, bytes]:
    """Return token, ca.pem, learner.pem and learner.key for a learner at ``host``, made at the first call.

    They are valid as long as a training may last.
    """
    from ds.certificates import signed  # cryptography is needed beyond one machine only

    return {TOKEN: secrets.token_urlsafe().encode(), **signed([host], days=365)}


def plan_from_args(options: DistributedOptions, folder: EnvFolder) -> ClusterPlan:
    """Return the plan of a command line. Raises ConfigError, UsageError, StorageError."""
    name, config = _resumed(options, folder) if options.train.resume else _new(options, folder)
    own_secrets = config.net_config.secrets != NetConfig().secrets
    return ClusterPlan(
        options=options, label=folder.label, name=name, folder=Path.cwd(), makes_secrets=not own_secrets
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
    name = expand_name(loaded.config.base_config.name, train.directory.absolute() / folder.label)
    RunDir.check_free(folder.label, name, models=train.directory, argument=train.env)
    return name, loaded.config


def _resumed(options: DistributedOptions, folder: EnvFolder) -> tuple[str, Config]:
    train = options.train
    if train.name is None:
        run = RunDir.newest(folder.label, models=train.directory, argument=train.env)
    else:
        run = RunDir.open(folder.label, train.name, models=train.directory, argument=train.env)
    loaded = load_config_file(run.config, train.overrides, options.flags, train.seed, env=folder)
    return run.name, loaded.config
