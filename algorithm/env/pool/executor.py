"""Execution of sub-environments: the interface, and implementations in this process and in others."""

from __future__ import annotations

import atexit
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from typing_extensions import override

from algorithm.core.errors import EnvError
from algorithm.core.steps import Float
from algorithm.core.system.processes import start_resource_tracker
from algorithm.env.base import Picture
from algorithm.env.pool.child_process import POLL_S, ChildProcess, WorkerLostError
from algorithm.env.pool.env_group import EnvGroup, GroupFailure, GroupInfo, MakeEnv
from algorithm.env.pool.step_buffers import SharedStepBuffers, StepBuffers
from algorithm.env.pool.watchdog import CLOSE_TIMEOUT, ActiveTime, Watchdog, hanging_close
from algorithm.env.pool.worker import run_worker
from algorithm.env.request import ignore_hang, ignore_text


class Executor(Protocol):
    """Runs all sub-environments on step buffers. Row i is sub-environment i, in whichever process."""

    buffers: StepBuffers  # actions and seeds go in, results come out
    info: GroupInfo  # without images in other processes
    arrangement: str  # number and place of the sub-environments, for messages

    def reset(self, indices: Sequence[int]) -> list[GroupFailure]:
        """Start episodes with the seeds of the buffers; sub-environments that failed are built again."""

    def step(self) -> list[GroupFailure]:
        """Step all with the actions of the buffers; reset with its seed where an episode ends."""

    def repeat(self, done: Mapping[int, Float]) -> list[GroupFailure]:
        """Start episodes with the seeds of the buffers and repeat actions: index -> flat actions [L, A].

        Rows then are those of the last step, with ``repeated_steps`` and ``repeated_return``. An episode that
        ends early stays there, terminated or truncated. The time-out holds for each step.
        """

    def render(self) -> Picture | None:
        """Return an image of sub-environment 0; None without one or in another process. Raises EnvError."""

    def close(self) -> None:
        """Release the simulators, within ten seconds. Raises EnvError where that fails."""


class InProcessExecutor(Executor):
    """All sub-environments in this process, one after the other.

    timeout: seconds after which a call counts as hanging, which ends the process; -1 waits for ever
    on_hang: called before that, in another thread
    """

    def __init__(
        self, make: MakeEnv, n: int, *, timeout: float, on_hang: Callable[[EnvError], None] = ignore_hang
    ) -> None:
        self._group = EnvGroup(make, range(n))
        self.info = self._group.info
        self.buffers = StepBuffers(
            self.info.spec, n, parameters=self.info.parameters, infos=len(self.info.infos)
        )
        self.arrangement = f"{n} in process"
        self._watchdog = Watchdog(self.buffers.call_started, self.info.name, timeout, on_hang)

    @override
    def reset(self, indices: Sequence[int]) -> list[GroupFailure]:
        with self._watchdog:
            return self._group.reset(self.buffers, indices)

    @override
    def step(self) -> list[GroupFailure]:
        with self._watchdog:
            return self._group.step(self.buffers)

    @override
    def repeat(self, done: Mapping[int, Float]) -> list[GroupFailure]:
        with self._watchdog:
            return self._group.repeat(self.buffers, done)

    @override
    def render(self) -> Picture | None:
        return self._group.render()

    @override
    def close(self) -> None:
        with self._watchdog.closing():
            self._group.close()


class WorkerExecutor(Executor):
    """An executor with processes, each of which runs a contiguous share of the sub-environments.

    Rows of the buffers belong to sub-environments, so neither the number of processes nor their speed changes
    results.

    num_workers: at most ``n``
    timeout:     seconds without an answer after which a call counts as hanging; -1 waits for ever
    log:         folder for the output of the processes; a temporary one by default
    waiting:     see :meth:`.ChildProcess.first_answer`
    Raises EnvError if the environment cannot be built.
    """

    def __init__(
        self,
        make: MakeEnv,
        n: int,
        num_workers: int,
        *,
        timeout: float,
        log: Path | None = None,
        waiting: Callable[[str], None] = ignore_text,
    ) -> None:
        if not 1 <= num_workers <= n:
            raise ValueError(f"{num_workers} worker processes for {n} environments")
        self._timeout = timeout
        self._held = ExitStack()  # what the workers use
        folder = log or Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="workers_")))
        folder.mkdir(parents=True, exist_ok=True)
        self._workers: list[WorkerProcess] = []
        start_resource_tracker()
        atexit.register(self._end)  # before the interpreter waits for its children
        try:
            for k in range(num_workers):
                share = range(n * k // num_workers, n * (k + 1) // num_workers)
                self._workers.append(WorkerProcess(make, share, n, folder / f"worker_{k}.log"))
            ready, *_ = [worker.wait_ready(timeout, waiting) for worker in self._workers]
            self.info = replace(ready, fps=None, render_modes=())  # pictures are taken in the main process
            self.buffers = SharedStepBuffers(
                self.info.spec, n, parameters=self.info.parameters, infos=len(self.info.infos)
            )
            self._held.callback(self.buffers.close)
            for worker in self._workers:
                worker.command("buffers", self.buffers.name)
        except BaseException:
            self._end()
            raise
        self.arrangement = f"{n} in {num_workers} worker process{'es' if num_workers > 1 else ''}"

    @override
    def reset(self, indices: Sequence[int]) -> list[GroupFailure]:
        shares = [(worker, [i for i in indices if i in worker.indices]) for worker in self._workers]
        return self._call("reset", {worker: share for worker, share in shares if share})

    @override
    def step(self) -> list[GroupFailure]:
        return self._call("step", dict.fromkeys(self._workers, ()))

    @override
    def repeat(self, done: Mapping[int, Float]) -> list[GroupFailure]:
        shares = {worker: {i: done[i] for i in worker.indices if i in done} for worker in self._workers}
        return self._call("repeat", {worker: share for worker, share in shares.items() if share})

    @override
    def render(self) -> Picture | None:
        """None: pictures are taken in this process."""
        return None

    @override
    def close(self) -> None:
        """End the processes; after ten seconds kill those that did not end, and raise EnvError."""
        if self._end():
            raise hanging_close(self.info.name)

    def _end(self) -> bool:
        """End the processes; return whether any had to be killed."""
        atexit.unregister(self._end)
        for worker in self._workers:
            with suppress(WorkerLostError):  # it is gone already
                worker.command("close")
        deadline = time.monotonic() + CLOSE_TIMEOUT
        killed = [worker for worker in self._workers if not worker.end(deadline)]
        self._workers.clear()
        self._held.close()
        return bool(killed)

    def _call(self, command: str, arguments: Mapping[WorkerProcess, object]) -> list[GroupFailure]:
        """Send a command to several workers, then collect their failures in order."""
        failures: list[GroupFailure] = []
        lost: dict[WorkerProcess, WorkerLostError] = {}
        for worker, argument in arguments.items():
            try:
                worker.command(command, argument)
            except WorkerLostError as loss:
                lost[worker] = loss
        active = ActiveTime(POLL_S)
        for worker in arguments:
            try:
                if worker not in lost:
                    failures += worker.answer(self.buffers, self._timeout, active)
            except WorkerLostError as loss:
                lost[worker] = loss
        return failures + [self._replace(worker, command, loss) for worker, loss in lost.items()]

    def _replace(self, worker: WorkerProcess, command: str, loss: WorkerLostError) -> GroupFailure:
        """Replace a lost process; its sub-environments wait for a reset."""
        envs = tuple(worker.indices)
        at_work = [i for i in envs if self.buffers.call_started[i] > 0]
        self.buffers.mark_skipped(envs)
        self.buffers.call_started[list(envs)] = 0.0
        fault = GroupFailure(
            envs=envs,
            culprit=at_work[0] if at_work else None,
            what=f"{worker.name} with {self.info.name} {loss.what} in {command}",
            why=loss.why,
            trace=loss.output,
        )
        worker.start()
        ready = worker.wait_ready(self._timeout)
        if ready.spec != self.info.spec:
            raise EnvError(
                f"{self.info.name} has different spaces after a restart",
                where=f"environments {', '.join(map(str, envs))}, {worker.name}",
                why=f"it was {self.info.spec} and is {ready.spec}",
                fix="an environment must keep its spaces during a run",
            ) from loss
        worker.command("buffers", self.buffers.name)
        return fault


class WorkerProcess(ChildProcess):
    """A process that runs the sub-environments ``indices`` of ``n``.

    output: file for its standard output and error
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
