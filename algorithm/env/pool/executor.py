"""Execution of sub-environments: the interface, and the implementation in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from typing_extensions import override

from algorithm.core.data import Float
from algorithm.core.errors import EnvError
from algorithm.core.spec import AgentSpec
from algorithm.env.base import Picture
from algorithm.env.pool.env_group import EnvGroup, GroupFailure
from algorithm.env.pool.step_buffers import StepBuffers
from algorithm.env.pool.watchdog import Watchdog
from algorithm.env.single import ActionDecoder, MakeEnv


class Executor(Protocol):
    """Runs all sub-environments on step buffers. Row i is sub-environment i, in whichever process."""

    buffers: StepBuffers  # actions and seeds go in, results come out
    name: str  # of the environment
    spec: AgentSpec
    actions: ActionDecoder
    time_limit: int | None
    fps: float | None  # of images; None without any
    render_modes: tuple[str, ...]  # empty in other processes
    arrangement: str  # number and place of the sub-environments, for messages

    def reset(self, indices: Sequence[int]) -> list[GroupFailure]:
        """Start episodes with the seeds of the buffers; sub-environments that failed are built again."""
        ...

    def step(self) -> list[GroupFailure]:
        """Step all with the actions of the buffers; reset with its seed where an episode ends."""
        ...

    def repeat(self, done: Mapping[int, Float]) -> list[GroupFailure]:
        """Start episodes with the seeds of the buffers and repeat actions: index -> flat actions [L, A].

        Rows then are those of the last step, with ``repeated_steps`` and ``repeated_return``. An episode that
        ends early stays there, terminated or truncated. The time-out holds for each step.
        """
        ...

    def render(self) -> Picture | None:
        """Return an image of sub-environment 0; None without one or in another process. Raises EnvError."""
        ...

    def close(self) -> None:
        """Release the simulators, within ten seconds."""
        ...


def ignore_hang(error: EnvError) -> None:
    """Do nothing: there is nothing to save."""


class InProcessExecutor(Executor):
    """All sub-environments in this process, one after the other.

    timeout: seconds after which a call counts as hanging, which ends the process; -1 waits for ever
    on_hang: called before that, in another thread
    """

    def __init__(
        self, make: MakeEnv, n: int, *, timeout: float, on_hang: Callable[[EnvError], None] = ignore_hang
    ) -> None:
        self._group = EnvGroup(make, range(n))
        self.name, self.spec, self.time_limit = self._group.name, self._group.spec, self._group.time_limit
        self.actions, self.fps = self._group.actions, self._group.fps
        self.render_modes = self._group.render_modes
        self.buffers = StepBuffers(self.spec, n)
        self.arrangement = f"{n} in process"
        self._n = n
        self._watchdog = Watchdog(self.buffers, self.name, timeout, on_hang)

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
