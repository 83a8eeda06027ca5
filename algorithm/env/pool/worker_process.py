"""A process with sub-environments as its parent controls it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from algorithm.env.pool.child_process import ChildProcess, ignore_text
from algorithm.env.pool.env_group import GroupFailure, GroupInfo, MakeEnv
from algorithm.env.pool.step_buffers import StepBuffers
from algorithm.env.pool.watchdog import ActiveTime
from algorithm.env.pool.worker import run_worker


class WorkerProcess(ChildProcess):
    """A process that runs the sub-environments ``indices`` of ``n``.

    output: file for what it prints
    """

    def __init__(self, make: MakeEnv, indices: range, n: int, output: Path) -> None:
        self.indices, self._n = indices, n
        super().__init__(run_worker, (make, indices, n), output, alone="base_config.workers: 0")

    def wait_ready(self, timeout: float, waiting: Callable[[str], None] = ignore_text) -> GroupInfo:
        """Wait for the description of its sub-environments; see :meth:`.ChildProcess.first_answer`."""
        making = f"{len(self.indices):,} of {self._n:,} environments"
        return cast(GroupInfo, self.first_answer(making, timeout, waiting))

    def command(self, name: str, argument: object = ()) -> None:
        """Send a command of :func:`~algorithm.env.pool.worker.run_worker`. Raises WorkerLostError."""
        self.send((name, argument))

    def answer(self, buffers: StepBuffers, timeout: float, active: ActiveTime) -> list[GroupFailure]:
        """Return the answer to a command. Raises WorkerLostError.

        timeout: seconds for each call into a sub-environment, of which there may be many
        active:  time since the command was sent
        """
        rows = slice(self.indices.start, self.indices.stop)
        since = lambda: float(buffers.call_started[rows].max())  # noqa: E731
        return cast("list[GroupFailure]", self.receive(timeout, active, since))
