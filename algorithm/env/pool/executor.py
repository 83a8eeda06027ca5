"""Who runs the copies of an environment: this process, or others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from algorithm.data import Float
from algorithm.env.base import Picture
from algorithm.env.pool.env_group import EnvGroup, GroupFailure
from algorithm.env.pool.step_buffers import StepBuffers
from algorithm.env.pool.watchdog import Watchdog
from algorithm.env.single import ActionDecoder, MakeEnv
from algorithm.errors import EnvError
from algorithm.spec import AgentSpec


class Executor(Protocol):
    """Runs all copies against a buffers. Row i of the buffers is copy i, whoever runs it."""

    buffers: StepBuffers  # actions and seeds go in, results come out
    name: str  # of the environment
    spec: AgentSpec
    actions: ActionDecoder
    time_limit: int | None
    fps: float | None  # of pictures; None where there are none
    render_modes: tuple[str, ...]  # of a copy in this process; none elsewhere
    arrangement: str  # how many there are and where they run, for a person

    def reset(self, indices: Sequence[int]) -> list[GroupFailure]:
        """Begin episodes with the buffers's seeds; copies that failed are started anew."""
        ...

    def step(self) -> list[GroupFailure]:
        """Step every copy with the buffers's actions; one whose episode ends is reset with its seed."""
        ...

    def repeat(self, done: Mapping[int, Float]) -> list[GroupFailure]:
        """Begin episodes with the buffers's seeds and do what was done in them: copy -> flat actions [L, A].

        The buffers's rows then are those of the last step, with ``taken`` and ``total``; where an episode ended
        on the way it stays there, terminated or truncated. Each step may take as long as any other.
        """
        ...

    def render(self) -> Picture | None:
        """A picture of copy 0; None if it was not made to give any, or runs elsewhere. Raises EnvError."""
        ...

    def close(self) -> None:
        """Release the simulators, within ten seconds."""
        ...


def ignore_hang(error: EnvError) -> None:
    """Nobody has anything to save."""


class InProcessExecutor(Executor):
    """All copies in this process, one after the other.

    timeout: seconds after which a call counts as hanging, which ends the process; -1 waits for ever.
    on_hang: told of it before that, in another thread
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

    def reset(self, indices: Sequence[int]) -> list[GroupFailure]:
        """See :class:`Executor`."""
        with self._watchdog:
            return self._group.reset(self.buffers, indices)

    def step(self) -> list[GroupFailure]:
        """See :class:`Executor`."""
        with self._watchdog:
            return self._group.step(self.buffers)

    def repeat(self, done: Mapping[int, Float]) -> list[GroupFailure]:
        """See :class:`Executor`."""
        with self._watchdog:
            return self._group.repeat(self.buffers, done)

    def render(self) -> Picture | None:
        """See :class:`Executor`."""
        return self._group.render()

    def close(self) -> None:
        """See :class:`Executor`."""
        with self._watchdog.closing():
            self._group.close()
