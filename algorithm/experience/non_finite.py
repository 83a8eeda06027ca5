"""NaN and infinity from environments and policies: found where they enter, then the end or a new episode."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from algorithm.data import ActorOutput, Array, Bool, Float
from algorithm.env.base import Observation, StepResult, Trace
from algorithm.errors import NumericalError
from algorithm.experience.failure_dump import FailureDumps
from algorithm.experience.faults import Faults

TOLD = 10
"""Dropped episodes that a run warns of; further ones are only counted."""

_MEND = "mend the environment; a wrapper may clip its numbers (base_config.wrappers)"


@dataclass(frozen=True)
class Number:
    """One that is not finite."""

    what: str  # reward, observation 'name'[2]
    value: float
    of_policy: bool = False  # not of the environment


@dataclass(frozen=True, kw_only=True)
class BadNumber:
    """The first one that an agent met in a step, as a person needs it to find the cause."""

    number: Number
    behaviour: str
    agent: int
    step: int  # of its episode; 0: its first observation
    action: Float  # [A] flat, the last one; it means nothing at the beginning

    @property
    def error(self) -> NumericalError:
        """Sensor, agent, step, last action, value."""
        number, where = self.number, f"{self.number.what} of {self.behaviour!r} agent {self.agent}"
        if self.step:
            action = ", ".join(f"{part:.4g}" for part in self.action)
            where += f", step {self.step} of its episode, after action [{action}]"
        else:
            where += ", at the beginning of its episode"
        what, fix = "the environment returned", _MEND
        if number.of_policy:
            what, fix = "the policy gave", "look for extreme observations, or lower sac_config.learning_rate"
        return NumericalError(
            f"{what} a number that is not finite", where=where, why=f"it is {number.value}", fix=fix
        )


def refuse(bad: BadNumber) -> None:
    """Raise its error."""
    raise bad.error


class OnNonFinite(Protocol):
    """What becomes of an episode that meets such a number."""

    def met(self, bad: BadNumber, trace: Callable[[], Trace | None], step: int) -> None:
        """Raise NumericalError, or return: then the episode ends, as truncated, before this step.

        trace: gives the episode as far as it is known
        step:  environment steps so far
        """
        ...


class Stop:
    """The run ends (``on_non_finite: stop``).

    dumps: writer of the dump of the episode; None writes none
    """

    def __init__(self, dumps: FailureDumps | None = None) -> None:
        self._dumps = dumps

    def met(self, bad: BadNumber, trace: Callable[[], Trace | None], step: int) -> None:
        """Raise it, with the command that shows the number again."""
        error = bad.error
        again = _recorded(self._dumps, bad, trace, step) if self._dumps else ""
        drop = "base_config.on_non_finite: drop    (leaves such episodes out and goes on)"
        fix = "\n".join(filter(None, (error.fix, again, drop)))
        raise NumericalError(error.what, where=error.where, why=error.why, fix=fix)


class Drop:
    """What came before this step is kept, and a new episode begins (``on_non_finite: drop``).

    dumps: writer of their dumps
    faults: who counts them, and warns of the first ``TOLD``
    most:   one more than so many ends the run after all; for evaluations, which wait for whole episodes
    """

    def __init__(self, dumps: FailureDumps, faults: Faults, *, most: float = math.inf) -> None:
        self._dumps, self._faults, self._most, self._left = dumps, faults, most, most
        self._told = 0

    def met(self, bad: BadNumber, trace: Callable[[], Trace | None], step: int) -> None:
        """Count it. Raises NumericalError for the one that is too many."""
        error, told = bad.error, self._told < TOLD
        if self._left == 0:
            why = f"{error.why}; {self._most:,} episodes were dropped for that before"
            raise NumericalError(error.what, where=error.where, why=why, fix=error.fix)
        self._left -= 1
        parts = [error.what, error.where, error.why, "episode dropped"]
        if told:
            self._told += 1
            parts.append(_recorded(self._dumps, bad, trace, step))
            parts.append("further ones are only counted (fault/non_finite)" if self._told == TOLD else "")
        self._faults.dropped(" · ".join(filter(None, parts)), told=told)


def _recorded(dumps: FailureDumps, bad: BadNumber, trace: Callable[[], Trace | None], step: int) -> str:
    """The command that shows it again, or why there is none."""
    if bad.number.of_policy:
        return ""
    return dumps.record(
        trace,
        what=bad.number.what,
        value=str(bad.number.value),
        behaviour=bad.behaviour,
        agent=bad.agent,
        episode_step=bad.step,
        environment_step=step,
    )


def no_beginning(tries: int) -> NumericalError:
    """The environment never begins with finite numbers."""
    return NumericalError(
        "the environment begins no episode with finite numbers",
        where=f"first observations, {tries} times in a row",
        fix=_MEND,
    )


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What is wrong with a step of N agents."""

    numbers: Mapping[int, Number]  # by row
    lost: Bool  # [N] the transition holds one
    begins: Bool  # [N] the transition is good, the first observation of the next episode is not
    again: Bool  # [N] what to act on is no use: another episode has to begin


def examine(result: StepResult, acted: ActorOutput) -> Findings | None:
    """Look at every number of a step; None if all that mean something are finite.

    Rows of ``acted`` are those of ``result``. What the policy gave is judged by its log-probability, in which
    it all shows. Nothing is meant by what is neither stored nor acted on.
    """
    own = _trouble({"log-probability": acted.behaviour_logp}, of_policy=True)
    got = _trouble({"reward": result.reward})
    seen = _trouble(_named(result))
    final = _trouble(_named(result.final)) if result.final else ()
    if not (own or got or seen or final):
        return None
    nobody = np.zeros(len(result.ids), np.bool_)
    stepped = ~(nobody if result.skipped is None else result.skipped)
    ended = stepped & (result.terminated | result.truncated)
    midway = stepped & ~ended
    lost = stepped & (_rows(own, nobody) | _rows(got, nobody))
    lost |= (midway & _rows(seen, nobody)) | (ended & _rows(final, nobody))
    there = ~midway if result.left is None else ~midway & ~result.left
    unusable = there & _rows(seen, nobody)
    if not (lost | unusable).any():
        return None
    numbers: dict[int, Number] = {}
    for trouble, rows in ((own, lost), (got, lost), (final, ended), (seen, midway | unusable)):
        numbers = {**_numbers(trouble, rows), **numbers}  # of several, the first
    return Findings(numbers=numbers, lost=lost, begins=unusable & ~lost, again=unusable | (lost & midway))


def examine_first(first: Observation) -> Mapping[int, Number]:
    """The rows of observations that episodes begin with in which something is not finite."""
    trouble = _trouble(_named(first))
    return _numbers(trouble, np.ones(len(first.ids), np.bool_))


def without(result: StepResult, lost: Bool) -> StepResult:
    """The same, as if the agents ``lost`` [N] had not taken the step."""
    return replace(
        result,
        reward=np.where(lost, np.float32(0.0), result.reward),
        terminated=result.terminated & ~lost,
        truncated=result.truncated & ~lost,
        skipped=lost if result.skipped is None else lost | result.skipped,
    )


@dataclass(frozen=True)
class _Trouble:
    """An array [N, ...] that is not finite everywhere."""

    what: str
    value: Array
    of_policy: bool

    @property
    def rows(self) -> Bool:
        """Where, [N]."""
        bad: Bool = np.logical_or.reduce(~np.isfinite(self.value).reshape(len(self.value), -1), axis=1)
        return bad

    def number(self, row: int) -> Number:
        """The first one of a row."""
        place = np.argwhere(~np.isfinite(self.value[row]))[0].tolist()
        return Number(f"{self.what}{place or ''}", float(self.value[row][tuple(place)]), self.of_policy)


def _trouble(values: Mapping[str, Array], *, of_policy: bool = False) -> Sequence[_Trouble]:
    return [
        _Trouble(what, value, of_policy)
        for what, value in values.items()
        if value.dtype.kind == "f" and not np.isfinite(value).all()
    ]


def _named(seen: Observation) -> dict[str, Array]:
    return {f"observation {name!r}": value for name, value in seen.obs.items()}


def _rows(trouble: Iterable[_Trouble], nobody: Bool) -> Bool:
    bad = nobody.copy()
    for one in trouble:
        bad |= one.rows
    return bad


def _numbers(trouble: Iterable[_Trouble], among: Bool) -> dict[int, Number]:
    """The first number of each row ``among`` which there are some."""
    numbers: dict[int, Number] = {}
    for one in trouble:
        for row in np.flatnonzero(one.rows & among).tolist():
            numbers.setdefault(row, one.number(row))
    return numbers
