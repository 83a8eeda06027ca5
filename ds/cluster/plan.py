"""Plan of a cluster: options of learner and actors, and where their files lie."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from algorithm.app.cli.ds import DistributedOptions
from algorithm.config.loader import load_config, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.config.schema import DISTRIBUTED_DEFAULTS, Config, NetConfig
from algorithm.store.names import MODELS, expand_name
from algorithm.store.rundir import RunDir
from ds.net.security import is_loopback

PROJECT = Path(__file__).resolve().parents[2]
"""Folder of the packages, and in a checkout of ``main_ds.py``."""


class Roles(Protocol):
    """Maker of the options of a learner and its actors.

    module: its ``perform`` carries out the options, and returns an exit code.
    """

    module: str

    def learner(self, host: str, port: int, *, resume: bool, step: int) -> object:
        """Return the options of a learner that listens there; port 0: at one that is free.

        resume: go on with the run; step: of its newest checkpoint, -1 without one
        """

    def actor(self, host: str, port: int) -> object:
        """Return the options of an actor for the learner there."""


_EVERYBODY = ("directory", "use_env_nn", "logger_in_file", "quiet", "debug")
_TASK = ("config", "algorithm", "preset", "agents", "nn", "env_args", "overrides")
_LEARNER: tuple[str, ...] = (*_EVERYBODY, "device")
_LIMITS = ("max_iter", "max_step")
"""Fields of the command's own options that a process gets. A learner that goes on with its run has no others
than ``_LEARNER``, for the run's own configuration counts then, unless the command itself resumes the run."""


@dataclass(frozen=True, kw_only=True)
class CommandRoles:
    """Learner and actors as a command describes them.

    options: the command's.
    name:    of the run, nothing left to expand.
    first:   overrides of a learner that begins the run.
    """

    options: DistributedOptions
    name: str
    first: tuple[str, ...] = ()
    module = "ds.command"

    def learner(self, host: str, port: int, *, resume: bool, step: int) -> DistributedOptions:
        """Return the options of a learner, whatever the step."""
        fields = _LEARNER
        if self.options.train.resume or not resume:
            fields += (*_TASK, *_LIMITS)
        if not resume:
            fields += ("seed",)
        made = self.options.of_role("learner", host, port, fields)
        overrides = (*made.train.overrides, *(() if resume else self.first))
        return replace(made, train=replace(made.train, name=self.name, resume=resume, overrides=overrides))

    def actor(self, host: str, port: int) -> DistributedOptions:
        """Return the options of an actor."""
        return self.options.of_role("actor", host, port, (*_EVERYBODY, *_TASK))


MakeSecrets = Callable[[Path, Sequence[str]], None]
"""Writer of token, ca.pem, learner.pem and learner.key for the given addresses into a folder."""


def make_secrets(folder: Path, hosts: Sequence[str]) -> None:
    """Make a token and certificates for ``hosts``, valid as long as a training may last."""
    from ds.certificates import make  # cryptography is needed beyond one machine only

    make(folder, hosts, days=365)


@cache
def secret_files(make: MakeSecrets, host: str) -> Mapping[str, bytes]:
    """Return files by name for a learner that listens at ``host``, made at the first call for it."""
    with tempfile.TemporaryDirectory(prefix="sac-secrets-") as name:
        make(Path(name), [host])
        return {file.name: file.read_bytes() for file in Path(name).iterdir()}


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """A training on a cluster.

    label, name: the run's, see ``RunDir``.
    argument: what the user types for the environment, where it is not the label.
    folder:  where all processes start.
    models:  the folder of all runs, below ``folder`` or absolute.
    actors:  how many at first.
    port:    of the learner; 0: a free one.
    resume:  the first learner goes on with the run.
    adopt:   the run may be there already, from a command that has ended; then its state decides.
    secrets: None where the user has seen to them; nothing is made on the loopback.
    fence:   seconds until the run of a learner whose node is lost may be taken over by another machine.
    prefix:  of the names of its processes, where there are other learners.
    learners: how many there are in all, which share the GPUs.
    """

    label: str
    name: str
    folder: Path
    roles: Roles
    actors: int
    learner_cpus: float = 1.0
    actor_cpus: float = 1.0
    port: int = 0
    resume: bool = False
    adopt: bool = False
    argument: str = ""
    models: Path = MODELS
    secrets: MakeSecrets | None = field(default=make_secrets)
    fence: float = 90.0
    prefix: str = ""
    learners: int = 1

    @property
    def run(self) -> str:
        """The run's folder, below ``folder`` or absolute."""
        return str(self.models / self.label / self.name)

    def secrets_at(self, host: str, *names: str) -> Mapping[str, bytes]:
        """Return files by name, all or ``names``, for a learner at ``host``; none on the loopback."""
        if self.secrets is None or is_loopback(host):
            return {}
        files = secret_files(self.secrets, host)
        return {name: files[name] for name in names or files}


def plan_from_args(options: DistributedOptions, folder: EnvFolder) -> ClusterPlan:
    """Return the plan of a command line. Raises ConfigError, UsageError, StorageError."""
    train, cluster = options.train, options.cluster
    assert cluster is not None
    assert cluster.num_actors is not None
    name, config = _resumed(options, folder) if train.resume else _new(options, folder)
    own_secrets = config.net_config.secrets != NetConfig().secrets
    return ClusterPlan(
        label=folder.label,
        name=name,
        argument=train.env,
        models=train.directory,
        folder=Path.cwd(),
        roles=CommandRoles(options=options, name=name),
        actors=cluster.num_actors,
        learner_cpus=cluster.learner_cpus,
        actor_cpus=cluster.actor_cpus,
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
