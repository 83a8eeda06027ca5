"""Start commands of a cluster: a fresh learner, a resumed one, an actor."""

from __future__ import annotations

import ipaddress
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from algorithm.core.errors import StorageError
from ds.cluster.host import NodeStatus, ProcessReport, StartCommand
from ds.cluster.plan import ClusterPlan, MakeSecrets

Endpoint = tuple[str, int]


class LearnerCommands:
    """Commands for one start of the learner after the other.

    A run that has a checkpoint is resumed; one without is set aside and begun anew. The former port is asked
    for where the learner stays, so that actors find it again by themselves.

    clock: seconds.
    """

    def __init__(self, plan: ClusterPlan, secrets: Secrets, clock: Callable[[], float]) -> None:
        self._plan, self._secrets, self._clock = plan, secrets, clock
        self._again = plan.found
        self._saved = False
        self._former: Endpoint | None = None
        self._lost_at: float | None = None
        self.took_former_port = False  # asked for in the last order

    def observe(self, report: ProcessReport) -> None:
        """Note the learner's last report."""
        self._saved = self._saved or report.saved
        if report.endpoint is not None:
            self._former, self._lost_at = report.endpoint, None

    def lost(self) -> None:
        """Note that the learner's node is gone."""
        if self._lost_at is None:
            self._lost_at = self._clock()

    def next_command(self, address: str, status: NodeStatus) -> StartCommand | None:
        """Return the next command for the node ``address``, which reports ``status``; None: not yet.

        Raises StorageError where a run that had a checkpoint cannot be found.
        """
        again = self._again
        if again and self._saved and not status.saved:
            raise _lost_run(self._plan, address)
        unlock = again and status.locked != ""
        if unlock and self._fenced():
            return None
        former = self._former if self._former and self._former[0] == address else None
        self.took_former_port = former is not None and former[1] != self._plan.port
        port = former[1] if former else self._plan.port
        self._former = None  # if it cannot have that port, the next one takes another
        self._again = True
        resume = status.saved if again else self._plan.resume
        return StartCommand(
            arguments=tuple(self._plan.commands.learner(address, port, resume=resume, step=status.step)),
            folder=str(self._plan.folder),
            run=self._plan.run,
            secrets=self._secrets.learner(address),
            aside=again and status.exists and not status.saved,
            unlock=unlock,
        )

    def _fenced(self) -> bool:
        """Return whether the lost learner may still be alive behind a broken network, and writing."""
        return self._lost_at is not None and self._clock() < self._lost_at + self._plan.fence


class Secrets:
    """Token and certificates beyond one machine, made anew for each address of a learner.

    make: None where nothing is to be made
    """

    def __init__(self, make: MakeSecrets | None) -> None:
        self._make = make
        self._host, self._files = "", dict[str, bytes]()

    def learner(self, host: str) -> Mapping[str, bytes]:
        """Return files by name for a learner that listens at ``host``; none on the loopback."""
        if self._make is None or ipaddress.ip_address(host).is_loopback:
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


def _lost_run(plan: ClusterPlan, address: str) -> StorageError:
    return StorageError(
        "the learner cannot go on where it was",
        where=f"{plan.folder / plan.run} on {address}",
        why="the node that it ran on is gone, and this one sees no checkpoint of the run: the nodes do not "
        "share that folder",
        fix="bring the node back and add --resume to the command,\n"
        "or train anew from a folder on a file system that all nodes share",
    )
