"""Runs a group of copies, one after the other, and goes on when one of them fails."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from algorithm.data import Float
from algorithm.env.base import Picture
from algorithm.env.pool.process_exit import contained, staying
from algorithm.env.pool.step_buffers import Board
from algorithm.env.single import BrokenSpaceError, MakeSingle, Seen, SingleEnv
from algorithm.errors import EnvError, UserError


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What went wrong in a group, as far as the group knows it."""

    copies: tuple[int, ...]  # their episodes are lost: they need a reset
    at: int | None  # the copy that was at work
    what: str
    why: str
    trace: str = ""
    fatal: bool = False  # a new copy would do the same
    harmless: bool = False  # no episode is lost, it is only to be told


class Copies:
    """The copies ``indices`` of an environment; nobody else touches their rows of a board.

    make: builds the copy of an index; its errors leave the constructor
    """

    def __init__(self, make: MakeSingle, indices: range) -> None:
        self._make, self._indices = make, indices
        self._envs: dict[int, SingleEnv] = {}
        try:
            for index in indices:
                self._envs[index] = make(index)
        except BaseException:
            while self._envs:
                with suppress(Exception), staying():  # the first error is the one to tell
                    self._envs.popitem()[1].close()
            raise
        first = self._envs[indices.start]
        self.name, self.spec, self.time_limit = first.name, first.spec, first.time_limit
        self.actions, self.fps, self.render_modes = first.actions, first.fps, first.render_modes
        self._notes: list[Failure] = []
        self._shapes = {name: shape for name, shape, _ in self.spec.obs.items()}

    def reset(self, board: Board, indices: Iterable[int]) -> list[Failure]:
        """Begin episodes with the board's seeds. A copy that failed before is made anew."""
        failures = []
        for i in indices:
            board.began[i] = time.monotonic()
            if failure := self._reset(board, i):
                failures.append(failure)
            board.began[i] = 0.0
        return failures + self._noted()

    def step(self, board: Board) -> list[Failure]:
        """Step every copy with the board's actions; one whose episode ends is reset at once.

        A copy that fails in its step is ``skipped``. One that fails in the reset that follows has taken its
        step. Both are closed, and made anew by the next :meth:`reset`.
        """
        failures = []
        board.skipped[self._indices.start : self._indices.stop] = False
        for i in self._indices:
            board.began[i] = time.monotonic()
            failure = self._step(board, i)
            if failure is None and (board.terminated[i] or board.truncated[i]):
                board.end(i)
                board.began[i] = time.monotonic()
                failure = self._reset(board, i)
            if failure:
                failures.append(failure)
            board.began[i] = 0.0
        return failures + self._noted()

    def repeat(self, board: Board, done: Mapping[int, Float]) -> list[Failure]:
        """Begin episodes with the board's seeds and do in them what was done before: copy -> [L, A].

        Writes the copy's row as if the last of these had just been done. Nothing follows an end: that would
        be another episode. Otherwise failures are those of :meth:`reset` and :meth:`step`.
        """
        failures = []
        for i, actions in done.items():
            if failure := self._repeat(board, i, actions):
                failures.append(failure)
            board.began[i] = 0.0
        return failures + self._noted()

    def render(self) -> Picture | None:
        """A picture of the first copy; None if it was not made to give any, or waits for a reset."""
        first = self._envs.get(self._indices.start)
        return first.render() if first else None

    def close(self) -> None:
        """Close every copy. Raises EnvError for the first that fails, when all were tried."""
        first: Exception | None = None
        while self._envs:
            try:
                self._envs.popitem()[1].close()
            except BaseException as error:
                first = first or contained(error)
        if first is not None:
            raise not_closed(self.name, first) from first

    def _repeat(self, board: Board, i: int, actions: Float) -> Failure | None:
        board.skip([i])
        board.taken[i] = board.total[i] = 0
        board.began[i] = time.monotonic()
        failure = self._reset(board, i)
        for action in actions:
            if failure or board.terminated[i] or board.truncated[i]:
                break
            board.action[i] = action
            board.taken[i] += 1
            board.began[i] = time.monotonic()
            failure = self._step(board, i)
            board.total[i] += board.reward[i]
        return failure

    def _reset(self, board: Board, i: int) -> Failure | None:
        try:
            if i not in self._envs:
                self._envs[i] = self._remade(i)
            self._write(board, i, self._envs[i].reset(board.seed.item(i)))
        except BaseException as error:
            return self._failed(i, "reset", contained(error))
        return None

    def _step(self, board: Board, i: int) -> Failure | None:
        try:
            seen, reward, terminated, truncated = self._envs[i].step(board.action[i])
            self._write(board, i, seen)
            board.reward[i], board.terminated[i], board.truncated[i] = reward, terminated, truncated
        except BaseException as error:
            board.skip([i])
            return self._failed(i, "step", contained(error))
        return None

    def _write(self, board: Board, i: int, seen: Seen) -> None:
        for name, shape in self._shapes.items():
            value = seen.obs[name]
            if np.shape(value) != shape:  # assignment would broadcast it silently
                raise BrokenSpaceError(
                    f"observation {name!r} has shape {np.shape(value)}, its space says {shape}"
                )
            try:
                board.obs[name][i] = value
            except (TypeError, ValueError) as error:
                raise BrokenSpaceError(f"observation {name!r} is no array of numbers: {error}") from error
        board.write_mask(i, seen.action_mask)
        for name, why in seen.outside.items():
            what = f"observation {name!r} of {self.name} lies outside of its bounds"
            self._notes.append(Failure(copies=(), at=i, what=what, why=why, harmless=True))

    def _noted(self) -> list[Failure]:
        """What is only to be told."""
        noted, self._notes = self._notes, []
        return noted

    def _remade(self, i: int) -> SingleEnv:
        env = self._make(i)
        if env.spec != self.spec:
            env.close()
            raise BrokenSpaceError(f"started anew it has other spaces: {env.spec}, before: {self.spec}")
        return env

    def _failed(self, i: int, call: str, error: Exception) -> Failure:
        why = error.line if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        trace = _own_trace(error)
        env = self._envs.pop(i, None)
        if env is not None:
            try:
                env.close()
            except BaseException as raised:  # it has failed already; that it cannot be closed is told with it
                second = contained(raised)
                trace += f"\n\nclosing it failed as well: {type(second).__name__}: {second}"
        return Failure(
            copies=(i,),
            at=i,
            what=f"{self.name} failed in {call}",
            why=why,
            trace=trace,
            # A simulator that could not be built again will not be built the next time either.
            fatal=isinstance(error, (BrokenSpaceError, UserError)),
        )


def not_closed(name: str, error: Exception) -> EnvError:
    """What to say of an environment whose ``close`` raised ``error``."""
    return EnvError(
        f"{name} failed in close",
        why=f"{type(error).__name__}: {error}",
        fix="mend its close(): what it holds may be left behind",
    )


def _own_trace(error: Exception) -> str:
    """The frames of the environment's own code, and all there is of errors that led to this one."""
    whole = traceback.TracebackException.from_exception(error)
    if whole.__cause__ or (whole.__context__ and not whole.__suppress_context__):
        return "".join(whole.format()).rstrip()
    frames = [frame for frame in whole.stack if Path(frame.filename) != Path(__file__)]
    return "".join(traceback.format_list(frames)).rstrip()
