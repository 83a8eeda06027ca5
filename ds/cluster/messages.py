"""What the command and its hosts on the nodes say to each other, through Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Order:
    """A process to start on a node.

    arguments: those behind the interpreter, the script first.
    folder:    the working directory, an absolute path that every node has.
    run:       the run's folder below it if the process is a learner, else empty.
    secrets:   files by name, written where only this user can read them; empty for none.
    aside:     give a run's folder without a checkpoint another name first, since its name is wanted.
    unlock:    remove the run's lock first; it is that of a node which is gone.
    """

    arguments: tuple[str, ...]
    folder: str
    run: str = ""
    secrets: Mapping[str, bytes] = field(default_factory=dict)
    aside: bool = False
    unlock: bool = False


@dataclass(frozen=True)
class Look:
    """What a node sees of a run's folder.

    saved: it has a checkpoint.
    locked: the name of the other machine that its lock names; empty without one.
    """

    exists: bool
    saved: bool
    locked: str


@dataclass(frozen=True)
class Report:
    """How a process fares.

    code:     its exit code once it ended, negative for a signal.
    lines:    what it printed since the report before.
    endpoint: where a learner listens.
    saved:    its run has a checkpoint.
    """

    pid: int
    code: int | None
    lines: tuple[str, ...]
    endpoint: tuple[str, int] | None
    saved: bool
