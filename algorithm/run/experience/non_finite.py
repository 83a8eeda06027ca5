"""NaN, infinity and numbers beyond float32, detected as they arrive; then the run or the episode ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from algorithm.core.data import ActorOutput, Array, Bool, Float
from algorithm.core.errors import NumericalError
from algorithm.env.base import Observation, StepResult
from algorithm.env.outputs import bad_number, fits_float32
from algorithm.run.experience.faults import Faults

MAX_WARNINGS = 10
"""Number of dropped episodes that a run warns of; further ones are only counted."""

_ADVICE = "fix the environment; except on UNITY a wrapper may clip its numbers (base_config.wrappers)"


@dataclass(frozen=True)
class Number:
    """A number that is not finite in float32."""

    what: str  # reward, observation 'name'[2]
    value: np.floating[Any]
    of_policy: bool = False  # not of the environment


@dataclass(frozen=True, kw_only=True)
class BadNumber:
    """The first number of an agent's step that is not finite, with facts for finding the cause."""

    number: Number
    behaviour: str
    agent: int
    step: int  # of its episode; 0: its first observation
    action: Float  # [A] flat, the last one; without meaning at the beginning
    episode: str = ""  # its environment, number and seed, where these are known
    taken: int | None = None  # steps of the run so far, by its collector

    @property
    def error(self) -> NumericalError:
        """Error with sensor, agent, step, last action, value and episode."""
        number, where = self.number, f"{self.number.what} of {self.behaviour!r} agent {self.agent}"
        if self.step:
            action = ", ".join(f"{part:.4g}" for part in self.action)
            where += f", step {self.step} of its episode, after action [{action}]"
        else:
            where += ", at the beginning of its episode"
        where += f"; {self.episode}" if self.episode else ""
        where += "" if self.taken is None else f"; after {self.taken:,} steps of these environments"
        what, fix = "the environment returned", _ADVICE
        if number.of_policy:
            what, fix = "the policy gave", "check for extreme observations, or lower learning_rate"
        return NumericalError(
            f"{what} a number that is not finite",
            where=where,
            why=f"it is {bad_number(number.value)}",
            fix=fix,
        )


def refuse(bad: BadNumber) -> None:
    """Raise the number's error."""
    raise bad.error


class Stop:
    """Treatment that ends the run (``on_non_finite: stop``).

    again: command that plays such episodes again
    """

    def __init__(self, again: str = "") -> None:
        self._again = again

    def handle(self, bad: BadNumber) -> None:
        """Raise NumericalError, with the command that repeats the episode."""
        error = bad.error
        again = "" if bad.number.of_policy else self._again
        drop = "base_config.on_non_finite: drop    (drops such episodes and continues)"
        fix = "\n".join(filter(None, (error.fix, again, drop)))
        raise NumericalError(error.what, where=error.where, why=error.why, fix=fix)


class Drop:
    """Treatment that keeps the earlier steps and begins a new episode (``on_non_finite: drop``).

    faults: receiver that counts such episodes, and warns of the first ``MAX_WARNINGS``
    most:   maximum number of such episodes; one more ends the run. For evaluations, which wait for whole ones
    """

    def __init__(self, faults: Faults, *, most: float = math.inf) -> None:
        self._faults, self._most, self._left = faults, most, most
        self._warned = 0

    def handle(self, bad: BadNumber) -> None:
        """Count the episode, which is truncated before this step.

        Raises NumericalError for an episode beyond ``most``.
        """
        error, warn = bad.error, self._warned < MAX_WARNINGS
        if self._left == 0:
            why = f"{error.why}; {self._most:,} episodes were dropped for that before"
            raise NumericalError(error.what, where=error.where, why=why, fix=error.fix)
        self._left -= 1
        parts = [error.what, error.where, error.why, "episode dropped"]
        if warn:
            self._warned += 1
            if self._warned == MAX_WARNINGS:
                parts.append("further ones are only counted (fault/non_finite)")
        self._faults.dropped(" · ".join(parts), warn=warn)


OnNonFinite = Stop | Drop
"""Treatments of an episode with such a number."""


def no_beginning(tries: int) -> NumericalError:
    """Return the error for an environment whose episodes never begin with finite numbers."""
    return NumericalError(
        "the environment starts no episode with finite numbers",
        where=f"first observations, {tries} times in a row",
        fix=_ADVICE,
    )


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Numbers in a step of N agents that are not finite, and their consequences."""

    numbers: Mapping[int, Number]  # by row
    lost: Bool  # [N] the transition holds one
    begins: Bool  # [N] the transition is good, the first observation of the next episode is not
    again: Bool  # [N] the observation to act on is unusable: another episode has to begin


def examine(result: StepResult, acted: ActorOutput) -> Findings | None:
    """Check every number of a step; return None if all that are used are finite.

    Rows of ``acted`` are those of ``result``. The policy's output is checked by its log-probability, which is
    not finite if any part of it is not. Numbers that are neither stored nor acted on are ignored.
    """
    policy = _trouble("log-probability", {"": acted.behaviour_logp}, of_policy=True)
    got = _trouble("reward", {"": result.reward})
    seen = _trouble("observation", result.obs)
    final = _trouble("observation", result.final.obs) if result.final else ()
    if not (policy or got or seen or final):
        return None
    no_rows = np.zeros(len(result.ids), np.bool_)
    stepped = ~(no_rows if result.skipped is None else result.skipped)
    ended = stepped & (result.terminated | result.truncated)
    midway = stepped & ~ended
    lost = stepped & (_rows(policy, no_rows) | _rows(got, no_rows))
    lost |= (midway & _rows(seen, no_rows)) | (ended & _rows(final, no_rows))
    there = ~midway if result.left is None else ~midway & ~result.left
    unusable = there & _rows(seen, no_rows)
    if not (lost | unusable).any():
        return None
    numbers: dict[int, Number] = {}
    for trouble, rows in ((policy, lost), (got, lost), (final, ended), (seen, midway | unusable)):
        numbers = {**_numbers(trouble, rows), **numbers}  # of several, the first
    return Findings(numbers=numbers, lost=lost, begins=unusable & ~lost, again=unusable | (lost & midway))


def examine_first(first: Observation) -> Mapping[int, Number]:
    """Return row -> number that is not finite, of first observations."""
    trouble = _trouble("observation", first.obs)
    return _numbers(trouble, np.ones(len(first.ids), np.bool_))


def without(result: StepResult, lost: Bool) -> StepResult:
    """Return the result as if the agents ``lost`` [N] had not taken the step."""
    return replace(
        result,
        reward=np.where(lost, 0.0, result.reward),
        terminated=result.terminated & ~lost,
        truncated=result.truncated & ~lost,
        skipped=lost if result.skipped is None else lost | result.skipped,
    )


@dataclass(frozen=True)
class _Trouble:
    """An array [N, ...] with some number that is not finite."""

    what: str
    value: Array
    of_policy: bool

    @property
    def rows(self) -> Bool:
        """Mask of the rows with such a number, [N]."""
        bad: Bool = np.logical_or.reduce(~fits_float32(self.value).reshape(len(self.value), -1), axis=1)
        return bad

    def number(self, row: int) -> Number:
        """Return the first such number of a row."""
        place = np.argwhere(~fits_float32(self.value[row]))[0].tolist()
        return Number(f"{self.what}{place or ''}", self.value[row][tuple(place)], self.of_policy)


def _trouble(what: str, values: Mapping[str, Array], *, of_policy: bool = False) -> Sequence[_Trouble]:
    """Return the arrays that have a number that is not finite as float32; what: begins their names."""
    return [
        _Trouble(f"{what} {name!r}" if name else what, value, of_policy)
        for name, value in values.items()
        if value.dtype.kind == "f" and not fits_float32(value).all()
    ]


def _rows(trouble: Iterable[_Trouble], no_rows: Bool) -> Bool:
    """Return which rows [N] have a number that is not finite, in any array."""
    bad = no_rows.copy()
    for array in trouble:
        bad |= array.rows
    return bad


def _numbers(trouble: Iterable[_Trouble], among: Bool) -> dict[int, Number]:
    """Return row -> its first number that is not finite, for the rows where ``among`` [N] is true."""
    numbers: dict[int, Number] = {}
    for array in trouble:
        for row in np.flatnonzero(array.rows & among).tolist():
            numbers.setdefault(row, array.number(row))
    return numbers
