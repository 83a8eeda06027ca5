"""Sub-environments stepped one after the other; one that fails does not stop the others."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from algorithm.core.errors import EnvError, UsageError, UserError, described
from algorithm.core.spec import AgentSpec
from algorithm.core.steps import Float
from algorithm.env.base import Fault, OnFault, Picture
from algorithm.env.gym import GymEnv
from algorithm.env.outputs import Remark, SpaceMismatchError, TimeStep
from algorithm.env.pool.process_exit import as_exception, exits_as_errors
from algorithm.env.pool.step_buffers import StepBuffers

MakeEnv = Callable[[int], GymEnv]
"""Index of a sub-environment -> that environment. Pickled for workers, so not a lambda. Raises EnvError."""


@dataclass(frozen=True, kw_only=True)
class GroupFailure:
    """A failure of a sub-environment, without the facts that only the pool has (episode, seed)."""

    envs: tuple[int, ...]  # sub-environments whose episodes are lost: they need a reset
    culprit: int | None  # the sub-environment whose call failed
    what: str
    why: str
    trace: str = ""
    fatal: bool = False  # a new sub-environment would fail alike
    refused: UsageError | None = None  # of settings that the environment cannot have, which it is


@dataclass(frozen=True, kw_only=True)
class GroupInfo:
    """Facts that all sub-environments have in common, as in GymEnv. Can be pickled.

    parameters: their number; infos: keys; remarks: on wrappers
    """

    name: str
    spec: AgentSpec
    time_limit: int | None
    parameters: int = 0
    infos: tuple[str, ...] = ()
    fps: float | None = None
    render_modes: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()


class RestartBudget:
    """Count of failures that a run may survive, ``restarts``; each is passed to ``on_fault``."""

    def __init__(self, restarts: int, on_fault: OnFault) -> None:
        self._restarts = self._left = restarts
        self._on_fault = on_fault

    @property
    def spent(self) -> int:
        """Number of failures that were survived."""
        return self._restarts - self._left

    def survive(self, failure: GroupFailure, where: str) -> None:
        """Count and report a failure.

        Raises :class:`EnvError` if it is fatal or one too many, UsageError where settings are refused.
        """
        if failure.fatal or self._left == 0:
            raise self._too_many(failure, where)
        self._left -= 1
        self._on_fault(Fault(what=failure.what, where=where, why=failure.why, trace=failure.trace))

    def _too_many(self, failure: GroupFailure, where: str) -> UserError:
        """Return the error for a failure that a run cannot survive."""
        if failure.refused is not None:
            return failure.refused
        survived = f"; {self._restarts} failures are tolerated (base_config.env_restarts)"
        fix = f"fix the environment{': a restart would fail in the same way' if failure.fatal else survived}"
        why = f"{failure.why}\n{failure.trace}" if failure.trace else failure.why
        return EnvError(failure.what, where=where, why=why, fix=fix)


class EnvGroup:
    """The sub-environments ``indices``; nothing else writes their rows of the buffers.

    make: builds the sub-environment of an index; the constructor raises its errors
    """

    def __init__(self, make: MakeEnv, indices: range) -> None:
        self._make, self._indices = make, indices
        self._envs: dict[int, GymEnv] = {}
        try:
            for index in indices:
                self._envs[index] = make(index)
        except BaseException:
            while self._envs:
                with suppress(Exception), exits_as_errors():  # the first error is raised
                    self._envs.popitem()[1].close()
            raise
        first = self._envs[indices.start]
        self.info = GroupInfo(
            name=first.name,
            spec=first.spec,
            time_limit=first.time_limit,
            parameters=first.parameters,
            infos=first.infos.keys,
            fps=first.fps,
            render_modes=first.render_modes,
            remarks=first.remarks,
        )
        self._shapes = {name: shape for name, shape, _ in first.spec.obs.items()}

    def reset(self, buffers: StepBuffers, indices: Iterable[int]) -> list[GroupFailure]:
        """Start episodes with the seeds of the buffers. What failed before is built again."""
        failures = []
        for i in indices:
            buffers.call_started[i] = time.monotonic()
            if failure := self._reset(buffers, i):
                failures.append(failure)
            buffers.call_started[i] = 0.0
        return failures

    def step(self, buffers: StepBuffers) -> list[GroupFailure]:
        """Step all with the actions of the buffers; reset at once where an episode ends.

        A failure in a step marks the row as ``skipped``. After a failure in the reset that follows, the step
        still counts. Either way the sub-environment is closed, and the next :meth:`reset` builds it again.
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
        return failures

    def repeat(self, buffers: StepBuffers, done: Mapping[int, Float]) -> list[GroupFailure]:
        """Start episodes with the seeds of the buffers and repeat actions in them: index -> [L, A].

        Rows then are those of the last repeated step. An episode that ends early stays there. Failures are
        those of :meth:`reset` and :meth:`step`.
        """
        failures = []
        for i, actions in done.items():
            if failure := self._repeat(buffers, i, actions):
                failures.append(failure)
            buffers.call_started[i] = 0.0
        return failures

    def render(self) -> Picture | None:
        """Return an image of the first sub-environment; None without one, or where it waits for a reset."""
        first = self._envs.get(self._indices.start)
        return first.render() if first else None

    def close(self) -> None:
        """Close all. Raises EnvError for the first that failed, after all were tried."""
        first: Exception | None = None
        while self._envs:
            try:
                self._envs.popitem()[1].close()
            except BaseException as error:
                first = first or as_exception(error)
        if first is not None:
            raise close_error(self.info.name, first) from first

    def _repeat(self, buffers: StepBuffers, i: int, actions: Float) -> GroupFailure | None:
        """Start an episode and repeat its actions [L, A]; return the failure that ended it, if any."""
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
        """Start an episode of sub-environment i, built again after a failure; return a failure, or None."""
        try:
            if i not in self._envs:
                self._envs[i] = self._make_again(i)
            self._write(buffers, i, self._envs[i].reset(buffers.seed.item(i), buffers.parameters[i]))
        except BaseException as error:
            return self._fail(i, "reset", as_exception(error))
        return None

    def _step(self, buffers: StepBuffers, i: int) -> GroupFailure | None:
        """Step sub-environment i and write its row; return a failure, or None."""
        try:
            time_step, reward, terminated, truncated = self._envs[i].step(buffers.action[i])
            self._write(buffers, i, time_step)
            buffers.reward[i], buffers.terminated[i], buffers.truncated[i] = reward, terminated, truncated
            buffers.write_executed(i, time_step.executed, by_person=time_step.by_person)
            buffers.infos[i] = self._envs[i].infos.values[0]
        except BaseException as error:
            buffers.mark_skipped([i])
            return self._fail(i, "step", as_exception(error))
        return None

    def _write(self, buffers: StepBuffers, i: int, time_step: TimeStep) -> None:
        """Write observation and mask to row i. Raises SpaceMismatchError."""
        for name, shape in self._shapes.items():
            value = time_step.obs[name]
            if np.shape(value) != shape:  # assignment would broadcast silently
                raise SpaceMismatchError(
                    f"observation {name!r} has shape {np.shape(value)}, its space has {shape}"
                )
            try:
                buffers.obs[name][i] = value
            except (TypeError, ValueError) as error:
                raise SpaceMismatchError(
                    f"observation {name!r} is not an array of numbers: {error}"
                ) from error
        buffers.write_mask(i, time_step.action_mask)

    def _make_again(self, i: int) -> GymEnv:
        """Build a failed sub-environment. Raises SpaceMismatchError if its spaces have changed."""
        env = self._make(i)
        if env.spec != self.info.spec:
            env.close()
            raise SpaceMismatchError(
                f"after a restart it has different spaces: {env.spec}, before: {self.info.spec}"
            )
        return env

    def _fail(self, i: int, call: str, error: Exception) -> GroupFailure:
        """Close sub-environment i, and return its failure in a call."""
        failure = failure_of(self.info.name, i, call, error)
        env = self._envs.pop(i, None)
        if env is not None:
            try:
                env.close()
            except BaseException as raised:  # reported together with the first failure
                second = as_exception(raised)
                also = f"\n\nclosing it failed as well: {type(second).__name__}: {second}"
                failure = replace(failure, trace=failure.trace + also)
        return failure


def failure_of(name: str, i: int, call: str, error: Exception) -> GroupFailure:
    """Return the failure of sub-environment i in a call. name: of the environment."""
    misfit = isinstance(error, SpaceMismatchError)  # raised by us: no line of the environment is to blame
    why = error.line if isinstance(error, UserError) else str(error) if misfit else described(error)
    return GroupFailure(
        envs=(i,),
        culprit=i,
        what=f"{name} failed in {call}",
        why=why,
        trace="" if misfit else _env_traceback(error),
        # What could not be built again would fail the next time as well.
        fatal=misfit or isinstance(error, UserError),
        refused=error if isinstance(error, UsageError) else None,
    )


def close_error(name: str, error: Exception) -> EnvError:
    """Return the error for an environment whose ``close`` raised ``error``."""
    return EnvError(
        f"{name} failed in close",
        why=described(error),
        fix="fix its close(): resources may leak",
    )


def _env_traceback(error: Exception) -> str:
    """Format the frames of the environment's own code, and the whole chain where there are causes."""
    whole = traceback.TracebackException.from_exception(error)
    if whole.__cause__ or (whole.__context__ and not whole.__suppress_context__):
        return "".join(whole.format()).rstrip()
    frames = [frame for frame in whole.stack if Path(frame.filename) != Path(__file__)]
    return "".join(traceback.format_list(frames)).rstrip()
