"""Plan of a cluster: command lines of learner and actors, and where their files lie."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from algorithm.app.cli.ds import DistributedOptions
from algorithm.app.cli.given import task_flags
from algorithm.config.loader import load_config, load_config_file
from algorithm.config.locate import EnvFolder
from algorithm.config.schema import DISTRIBUTED_DEFAULTS, Config, NetConfig
from algorithm.core.program import python_arguments
from algorithm.store.names import MODELS, directory_flags, expand_name
from algorithm.store.rundir import RunDir
from ds.net.security import is_loopback

PROJECT = Path(__file__).resolve().parents[2]
"""Folder of the packages, and in a checkout of ``main_ds.py``."""


class Commands(Protocol):
    """Makers of command lines: arguments behind the interpreter, the script first."""

    def learner(self, host: str, port: int, *, resume: bool, step: int) -> Sequence[str]:
        """Return the arguments of a learner that listens there; port 0: at one that is free.

        resume: go on with the run; step: of its newest checkpoint, -1 without one
        """

    def actor(self, host: str, port: int) -> Sequence[str]:
        """Return the arguments of an actor for the learner there."""


@dataclass(frozen=True, kw_only=True)
class MainCommands:
    """``python main_ds.py ENV learner`` and ``actor``.

    script:   arguments of Python before those of main_ds.py.
    env:      as the user gave it.
    name:     of the run, nothing left to expand.
    common:   flags of both, such as ``-c`` and ``-o``.
    learner_flags, actor_flags: flags of one of them, such as ``--seed``. Of a learner that goes on with its
        run they are left out, for the run's own configuration counts then.
    kept:     flags of a learner that goes on with its run as well, such as ``--device``.
    """

    script: tuple[str, ...]
    env: str
    name: str
    common: tuple[str, ...] = ()
    learner_flags: tuple[str, ...] = ()
    actor_flags: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def learner(self, host: str, port: int, *, resume: bool, step: int) -> tuple[str, ...]:
        """Return the learner's command line, whatever the step."""
        flags = ("--resume",) if resume else (*self.common, *self.learner_flags)
        return (*self.base("learner", host, port), "-n", self.name, *self.kept, *flags)

    def actor(self, host: str, port: int) -> tuple[str, ...]:
        """Return an actor's command line."""
        return (*self.base("actor", host, port), *self.common, *self.actor_flags)

    def base(self, role: str, host: str, port: int) -> tuple[str, ...]:
        """Return the beginning of a command line of ``role``."""
        return (*self.script, self.env, role, "--learner_host", host, "--learner_port", str(port))


MakeSecrets = Callable[[Path, Sequence[str]], None]
"""Writer of token, ca.pem, learner.pem and learner.key for the given addresses into a folder."""


def make_secrets(folder: Path, hosts: Sequence[str]) -> None:
    """Make a token and certificates for ``hosts``, valid as long as a training may last."""
    from ds.certificates import make  # cryptography is needed beyond one machine only

    make(folder, hosts, days=365)


class Secrets:
    """Token and certificates beyond one machine, made anew for each address of a learner.

    make: None where nothing is to be made
    """

    def __init__(self, make: MakeSecrets | None) -> None:
        self._make = make
        self._host, self._files = "", dict[str, bytes]()

    def learner(self, host: str) -> Mapping[str, bytes]:
        """Return files by name for a learner that listens at ``host``; none on the loopback."""
        if self._make is None or is_loopback(host):
            return {}
        if host != self._host:
            with tempfile.TemporaryDirectory(prefix="sac-secrets-") as name:
                self._make(Path(name), [host])
                self._files = {file.name: file.read_bytes() for file in Path(name).iterdir()}
            self._host = host
        return self._files

    def actor(self, host: str) -> Mapping[str, bytes]:
        """Return files by name for an actor of the learner at ``host``: without its private key."""
        return {name: data for name, data in self.learner(host).items() if name in ("token", "ca.pem")}


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
    found:   the run may be there already, from a command that has ended; then its state decides.
    secrets: None where the user has seen to them; nothing is made on the loopback.
    fence:   seconds until the run of a learner whose node is lost may be taken over by another machine.
    prefix:  of the names of its processes, where there are other learners.
    learners: how many there are in all, which share the GPUs.
    """

    label: str
    name: str
    folder: Path
    commands: Commands
    actors: int
    learner_cpus: float = 1.0
    actor_cpus: float = 1.0
    port: int = 0
    resume: bool = False
    found: bool = False
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
        commands=commands_from_args(options, name),
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


def commands_from_args(options: DistributedOptions, name: str) -> MainCommands:
    """Return the command lines of a training called ``name``."""
    train = options.train
    changes = tuple(word for override in train.overrides for word in ("-o", override))
    common = (*_words({f"--{flag}": value for flag, value in task_flags(train).items()}), *changes)
    where = tuple(directory_flags(train.directory))
    kept = (*where, *_words({"--device": train.device}), *_switches(options))
    return MainCommands(
        script=python_arguments("main_ds.py"),
        env=train.env,
        name=name,
        common=common,
        learner_flags=_words(
            {"--seed": train.seed, "--max_iter": train.max_iter, "--max_step": train.max_step}
        ),
        actor_flags=(*where, *_switches(options)),
        kept=(*kept, *common) if train.resume else kept,
    )


def _switches(options: DistributedOptions) -> tuple[str, ...]:
    train = options.train
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
