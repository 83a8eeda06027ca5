"""What is to run: the command lines of learner and actors, and where their files lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class Commands(Protocol):
    """Arguments behind the interpreter, the script first."""

    def learner(self, host: str, port: int, *, resume: bool) -> Sequence[str]:
        """Of a learner that listens there; port 0: at one that is free."""

    def actor(self, host: str, port: int) -> Sequence[str]:
        """Of an actor for the learner there."""


@dataclass(frozen=True, kw_only=True)
class MainCommands:
    """``python main_ds.py ENV learner`` and ``actor``.

    script:   main_ds.py, absolute.
    env:      as the user gave it.
    name:     of the run, nothing left to expand.
    common:   flags of both, such as ``-c`` and ``-o``.
    learner_flags, actor_flags: flags of one of them, such as ``--seed``. Of a learner that goes on with its
        run they are left out, for the run's own configuration counts then.
    kept:     flags of a learner that goes on with its run as well, such as ``--device``.
    """

    script: Path
    env: str
    name: str
    common: tuple[str, ...] = ()
    learner_flags: tuple[str, ...] = ()
    actor_flags: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def learner(self, host: str, port: int, *, resume: bool) -> tuple[str, ...]:
        """See :class:`Commands`."""
        flags = ("--resume",) if resume else (*self.common, *self.learner_flags)
        return (*self._base("learner", host, port), "-n", self.name, *self.kept, *flags)

    def actor(self, host: str, port: int) -> tuple[str, ...]:
        """See :class:`Commands`."""
        return (*self._base("actor", host, port), *self.common, *self.actor_flags)

    def _base(self, role: str, host: str, port: int) -> tuple[str, ...]:
        return (str(self.script), self.env, role, "--learner_host", host, "--learner_port", str(port))


MakeSecrets = Callable[[Path, Sequence[str]], None]
"""Writes token, ca.pem, learner.pem and learner.key for the given addresses into a folder."""


def make_secrets(folder: Path, hosts: Sequence[str]) -> None:
    """A token and certificates for ``hosts``, valid as long as a training may last."""
    from ds.certificates import make  # cryptography is needed beyond one machine only

    make(folder, hosts, days=365)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A training on a cluster.

    label, name: the run's, see ``RunDir``.
    argument: what the user types for the environment, where it is not the label.
    folder:  where all processes start; the run lies in ``models/<label>/<name>`` below it.
    actors:  how many at first.
    port:    of the learner; 0: a free one.
    resume:  the first learner goes on with the run.
    secrets: None where the user has seen to them; nothing is made on the loopback.
    fence:   seconds until the run of a learner whose node is lost may be taken over by another machine.
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
    argument: str = ""
    secrets: MakeSecrets | None = field(default=make_secrets)
    fence: float = 90.0

    @property
    def run(self) -> str:
        """The run's folder below ``folder``."""
        return f"models/{self.label}/{self.name}"
