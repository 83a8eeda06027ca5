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
from algorithm.env.pool.process_exit import as_exception, exits_as_errors
from algorithm.env.pool.step_buffers import StepBuffers
from algorithm.env.single import MakeEnv, SingleEnv, SpaceMismatchError, TimeStep
from algorithm.errors import EnvError, UserError


@dataclass(frozen=True, kw_only=True)
class GroupFailure:
    """What went wrong in a group, as far as the group knows it."""

    envs: tuple[int, ...]  # their episodes are lost: they need a reset
    culprit: int | None  # the copy that was at work
    what: str
    why: str
    trace: str = ""
    fatal: bool = False  # a new copy would do the same
    harmless: bool = False  # no episode is lost, it is only to be told


class EnvGroup:
    """The copies ``indices`` of an environment; nobody else touches their rows of a buffers.

    make: builds the copy of an index; its errors leave the constructor
    """

    def __init__(self, make: MakeEnv, indices: range) -> None:
        self._make, self._indices = make, indices
        self._envs: dict[int, SingleEnv] = {}
        try:
            for index in indices:
                self._envs[index] = make(index)
        except BaseException:
            while self._envs:
                with suppress(Exception), exits_as_errors():  # the first error is the one to tell
                    self._envs.popitem()[1].close()
            raise
        first = self._envs[indices.start]
        self.name, self.spec, self.time_limit = first.name, first.spec, first.time_limit
        self.actions, self.fps, self.render_modes = first.actions, first.fps, first.render_modes
        self._notes: list[GroupFailure] = []
        self._shapes = {name: shape for name, shape, _ in self.spec.obs.items()}

    def reset(self, buffers: StepBuffers, indices: Iterable[int]) -> list[GroupFailure]:
        """Begin episodes with the buffers's seeds. A copy that failed before is made anew."""
        failures = []
        for i in indices:
            buffers.call_started[i] = time.monotonic()
            if failure := self._reset(buffers, i):
                failures.append(failure)
            buffers.call_started[i] = 0.0
        return failures + self._take_notes()

    def step(self, buffers: StepBuffers) -> list[GroupFailure]:
        """Step every copy with the buffers's actions; one whose episode ends is reset at once.

        A copy that fails in its step is ``skipped``. One that fails in the reset that follows has taken its
        step. Both are closed, and made anew by the next :meth:`reset`.
        """
        failures = []
        buffers.skipped[self._indices.start : self._indices.stop] = False
        for i in self._indices:
            buffers.call_started[i] = time.monotonic()
            failure = self._step(buffers, i)
            if failure is None and (buffers.terminated[i] or buffers.truncated[i]):
                buffers.store_final(i)
                buffers.call_started[i] = time.monotonic()
                failure = self._reset(buffers, i)
            if failure:
                failures.append(failure)
            buffers.call_started[i] = 0.0
        return failures + self._take_notes()

    def repeat(self, buffers: StepBuffers, done: Mapping[int, Float]) -> list[GroupFailure]:
        """Begin episodes with the buffers's seeds and do in them what was done before: copy -> [L, A].

        Writes the copy's row as if the last of these had just been done. Nothing follows an end: that would
        be another episode. Otherwise failures are those of :meth:`reset` and :meth:`step`.
        """
        failures = []
        for i, actions in done.items():
            if failure := self._repeat(buffers, i, actions):
                failures.append(failure)
            buffers.call_started[i] = 0.0
        return failures + self._take_notes()

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
                first = first or as_exception(error)
        if first is not None:
            raise close_error(self.name, first) from first

    def _repeat(self, buffers: StepBuffers, i: int, actions: Float) -> GroupFailure | None:
        buffers.mark_skipped([i])
        buffers.repeated_steps[i] = buffers.repeated_return[i] = 0
        buffers.call_started[i] = time.monotonic()
        failure = self._reset(buffers, i)
        for action in actions:
            if failure or buffers.terminated[i] or buffers.truncated[i]:
                break
            buffers.action[i] = action
            buffers.repeated_steps[i] += 1
            buffers.call_started[i] = time.monotonic()
            failure = self._step(buffers, i)
            buffers.repeated_return[i] += buffers.reward[i]
        return failure

    def _reset(self, buffers: StepBuffers, i: int) -> GroupFailure | None:
        try:
            if i not in self._envs:
                self._envs[i] = self._make_again(i)
            self._write(buffers, i, self._envs[i].reset(buffers.seed.item(i)))
        except BaseException as error:
            return self._fail(i, "reset", as_exception(error))
        return None

    def _step(self, buffers: StepBuffers, i: int) -> GroupFailure | None:
        try:
            time_step, reward, terminated, truncated = self._envs[i].step(buffers.action[i])
            self._write(buffers, i, time_step)
            buffers.reward[i], buffers.terminated[i], buffers.truncated[i] = reward, terminated, truncated
        except BaseException as error:
            buffers.mark_skipped([i])
            return self._fail(i, "step", as_exception(error))
        return None

    def _write(self, buffers: StepBuffers, i: int, time_step: TimeStep) -> None:
        for name, shape in self._shapes.items():
            value = time_step.obs[name]
            if np.shape(value) != shape:  # assignment would broadcast it silently
                raise SpaceMismatchError(
                    f"observation {name!r} has shape {np.shape(value)}, its space says {shape}"
                )
            try:
                buffers.obs[name][i] = value
            except (TypeError, ValueError) as error:
                raise SpaceMismatchError(f"observation {name!r} is no array of numbers: {error}") from error
        buffers.write_mask(i, time_step.action_mask)
        for name, why in time_step.out_of_bounds.items():
            what = f"observation {name!r} of {self.name} lies outside of its bounds"
            self._notes.append(GroupFailure(envs=(), culprit=i, what=what, why=why, harmless=True))

    def _take_notes(self) -> list[GroupFailure]:
        """What is only to be told."""
        noted, self._notes = self._notes, []
        return noted

    def _make_again(self, i: int) -> SingleEnv:
        env = self._make(i)
        if env.spec != self.spec:
            env.close()
            raise SpaceMismatchError(f"started anew it has other spaces: {env.spec}, before: {self.spec}")
        return env

    def _fail(self, i: int, call: str, error: Exception) -> GroupFailure:
        why = error.line if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        trace = _env_traceback(error)
        env = self._envs.pop(i, None)
        if env is not None:
            try:
                env.close()
            except BaseException as raised:  # it has failed already; that it cannot be closed is told with it
                second = as_exception(raised)
                trace += f"\n\nclosing it failed as well: {type(second).__name__}: {second}"
        return GroupFailure(
            envs=(i,),
            culprit=i,
            what=f"{self.name} failed in {call}",
            why=why,
            trace=trace,
            # A simulator that could not be built again will not be built the next time either.
            fatal=isinstance(error, (SpaceMismatchError, UserError)),
        )


def close_error(name: str, error: Exception) -> EnvError:
    """What to say of an environment whose ``close`` raised ``error``."""
    return EnvError(
        f"{name} failed in close",
        why=f"{type(error).__name__}: {error}",
        fix="mend its close(): what it holds may be left behind",
    )


def _env_traceback(error: Exception) -> str:
    """The frames of the environment's own code, and all there is of errors that led to this one."""
    whole = traceback.TracebackException.from_exception(error)
    if whole.__cause__ or (whole.__context__ and not whole.__suppress_context__):
        return "".join(whole.format()).rstrip()
    frames = [frame for frame in whole.stack if Path(frame.filename) != Path(__file__)]
    return "".join(traceback.format_list(frames)).rstrip()
