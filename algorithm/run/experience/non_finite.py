"""NaN, infinity and numbers beyond float32, detected as they arrive; then the run ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from algorithm.core.data import ActorOutput, Array, Bool, Float
from algorithm.core.errors import NumericalError
from algorithm.env.base import Observation, StepResult
from algorithm.env.outputs import bad_number, fits_float32

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

    def error(self, again: str = "") -> NumericalError:
        """Return the error with sensor, agent, step, last action, value and episode.

        again: command that plays such an episode again
        """
        number, where = self.number, f"{self.number.what} of {self.behaviour!r} agent {self.agent}"
        if self.step:
            action = ", ".join(f"{part:.4g}" for part in self.action)
            where += f", step {self.step} of its episode, after action [{action}]"
        else:
            where += ", at the beginning of its episode"
        where += f"; {self.episode}" if self.episode else ""
        where += "" if self.taken is None else f"; after {self.taken:,} steps of these environments"
        what, fix = "the environment returned", f"{_ADVICE}\n{again}".strip()
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
    raise bad.error()


class BadPlace(NamedTuple):
    """A number that is not finite in the results of N agents."""

    row: int  # of its agent
    number: Number
    begins: bool = True  # it is in the first observation of an episode


def first_bad(result: StepResult, acted: ActorOutput) -> BadPlace | None:
    """Return the first number of a step that is not finite; None if all that are used are finite.

    Rows of ``acted`` are those of ``result``. The policy's output is checked by its log-probability, which is
    not finite if any part of it is not. Numbers that are neither stored nor acted on are ignored.
    """
    of_policy = _suspects({"log-probability": acted.behaviour_logp})
    got = _suspects({"reward": result.reward})
    seen = _suspects(_named(result))
    final = _suspects(_named(result.final)) if result.final else {}
    if not (of_policy or got or seen or final):
        return None
    no_rows = np.zeros(len(result.ids), np.bool_)
    stepped = ~(no_rows if result.skipped is None else result.skipped)
    ended = stepped & (result.terminated | result.truncated)
    midway = stepped & ~ended
    begins = ~midway if result.left is None else ~midway & ~result.left
    for arrays, used in (
        (of_policy, stepped),
        (got, stepped),
        (final, ended),
        (seen, midway),
        (seen, begins),
    ):
        for what, value in arrays.items():
            bad = np.flatnonzero(_bad_rows(value) & used)
            if len(bad):
                number = _number(what, value, bad[0], of_policy=arrays is of_policy)
                return BadPlace(int(bad[0]), number, begins=used is begins)
    return None


def first_bad_of(first: Observation) -> BadPlace | None:
    """Return the first number of first observations that is not finite; None if there is none."""
    for what, value in _suspects(_named(first)).items():
        row = np.flatnonzero(_bad_rows(value))[0]
        return BadPlace(int(row), _number(what, value, row))
    return None


def _suspects(values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays that have a number that is not finite as float32."""
    return {
        what: value
        for what, value in values.items()
        if value.dtype.kind == "f" and not fits_float32(value).all()
    }


def _named(seen: Observation) -> dict[str, Array]:
    """Return the arrays of an observation, by their names in messages."""
    return {f"observation {name!r}": value for name, value in seen.obs.items()}


def _bad_rows(value: Array) -> Bool:
    """Return which rows [N] of an array have a number that is not finite."""
    bad: Bool = np.logical_or.reduce(~fits_float32(value).reshape(len(value), -1), axis=1)
    return bad


def _number(what: str, value: Array, row: int, *, of_policy: bool = False) -> Number:
    """Return the first number of a row that is not finite."""
    place = np.argwhere(~fits_float32(value[row]))[0].tolist()
    return Number(f"{what}{place or ''}", value[row][tuple(place)], of_policy)
