"""Who runs the copies of an environment: this process, or others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from algorithm.data import Float
from algorithm.env.base import Picture
from algorithm.env.pool.env_group import Copies, Failure
from algorithm.env.pool.step_buffers import Board
from algorithm.env.pool.watchdog import Watchdog
from algorithm.env.single import MakeSingle, OwnActions
from algorithm.errors import EnvError
from algorithm.spec import AgentSpec


class Executor(Protocol):
    """Runs all copies against a board. Row i of the board is copy i, whoever runs it."""

    name: str  # of the environment
    spec: AgentSpec
    actions: OwnActions
    time_limit: int | None
    fps: float | None  # of pictures; None where there are none
    render_modes: tuple[str, ...]  # of a copy in this process; none elsewhere
    arrangement: str  # how many there are and where they run, for a person

    @property
    def board(self) -> Board:
        """Where actions and seeds are written and results are read."""
        ...

    def reset(self, indices: Sequence[int]) -> list[Failure]:
        """Begin episodes with the board's seeds; copies that failed are started anew."""
        ...

    def step(self) -> list[Failure]:
        """Step every copy with the board's actions; one whose episode ends is reset with its seed."""
        ...

    def repeat(self, done: Mapping[int, Float]) -> list[Failure]:
        """Begin episodes with the board's seeds and do what was done in them: copy -> flat actions [L, A].

        The board's rows then are those of the last step, with ``taken`` and ``total``; where an episode ended
        on the way it stays there, terminated or truncated. Each step may take as long as any other.
        """
        ...

    def render(self) -> Picture | None:
        """A picture of copy 0; None if it was not made to give any, or runs elsewhere. Raises EnvError."""
        ...

    def close(self) -> None:
        """Release the simulators, within ten seconds."""
        ...


def unsaved(error: EnvError) -> None:
    """Nobody has anything to save."""


class InProcess:
    """All copies in this process, one after the other.

    timeout: seconds after which a call counts as hanging, which ends the process; -1 waits for ever.
    on_hang: told of it before that, in another thread
    """

    def __init__(
        self, make: MakeSingle, n: int, *, timeout: float, on_hang: Callable[[EnvError], None] = unsaved
    ) -> None:
        self._copies = Copies(make, range(n))
        self.name, self.spec, self.time_limit = self._copies.name, self._copies.spec, self._copies.time_limit
        self.actions, self.fps = self._copies.actions, self._copies.fps
        self.render_modes = self._copies.render_modes
        self.board = Board(self.spec, n)
        self.arrangement = f"{n} in process"
        self._n = n
        self._watchdog = Watchdog(self.board, self.name, timeout, on_hang)

    def reset(self, indices: Sequence[int]) -> list[Failure]:
        """See :class:`Executor`."""
        with self._watchdog:
            return self._copies.reset(self.board, indices)

    def step(self) -> list[Failure]:
        """See :class:`Executor`."""
        with self._watchdog:
            return self._copies.step(self.board)

    def repeat(self, done: Mapping[int, Float]) -> list[Failure]:
        """See :class:`Executor`."""
        with self._watchdog:
            return self._copies.repeat(self.board, done)

    def render(self) -> Picture | None:
        """See :class:`Executor`."""
        return self._copies.render()

    def close(self) -> None:
        """See :class:`Executor`."""
        with self._watchdog.closing():
            self._copies.close()
