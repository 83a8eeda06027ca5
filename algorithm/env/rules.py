"""Parameters of a Unity environment, the values of ``reset_config``."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from algorithm.core.fields import Contradiction

_LARGEST = 3.4028234e38  # of a float of 32 bits, which is what Unity reads
_SAMPLERS = {"uniform": "low, high", "gaussian": "mean, deviation", "multirange": "[low, high], …"}


@dataclass(frozen=True)
class EnvParameter:
    """A parameter of the environment: a number, or one of Unity's samplers.

    sampler: empty for a number
    numbers: the number, or the sampler's, those of ``multirange`` in pairs
    """

    sampler: str
    numbers: tuple[float, ...]

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """Pairs of consecutive numbers."""
        return list(zip(self.numbers[::2], self.numbers[1::2], strict=True))


class ParameterError(ValueError):
    """A value that is no parameter of a Unity environment: the reason, and what to do."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.why, self.fix = why, fix


def read_parameters(reset_config: Mapping[str, Any] | None) -> dict[str, EnvParameter]:
    """Return ``reset_config`` as parameters of a Unity environment. Raises ParameterError."""
    return {str(name): _parameter(str(name), value) for name, value in (reset_config or {}).items()}


def wrong_parameters(reset_config: Mapping[str, Any] | None) -> Iterator[Contradiction]:
    """Yield the entries of ``reset_config`` that are no parameters of a Unity environment."""
    for name, value in (reset_config or {}).items():
        try:
            _parameter(str(name), value)
        except ParameterError as error:
            yield Contradiction((f"reset_config.{name}",), error.why, error.fix)


def unsampled(reset_config: Mapping[str, Any] | None) -> list[str]:
    """Return the names whose value is one of Unity's samplers, from which no other environment draws."""
    given = (reset_config or {}).items()
    return [
        name
        for name, value in given
        if isinstance(value, Mapping) and len(value) == 1 and {*value} & {*_SAMPLERS}
    ]


def _parameter(name: str, value: object) -> EnvParameter:
    if not name.isascii():
        raise ParameterError("its name has other characters than ASCII", "Unity cannot read them: rename it")
    if _is_number(value):
        return EnvParameter("", (float(value),))
    known = ", ".join(f"{{{sampler}: [{numbers}]}}" for sampler, numbers in _SAMPLERS.items())
    fix = f"give a number up to ±{_LARGEST:.1e}, or one of {known}"
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ParameterError(f"it is {value!r}", fix)
    ((sampler, given),) = value.items()
    if sampler not in _SAMPLERS:
        close = difflib.get_close_matches(str(sampler), _SAMPLERS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ParameterError(f"there is no sampler {sampler!r}", hint + fix)
    ranges = given if sampler == "multirange" else [given]
    pairs = [_pair(one) for one in ranges] if isinstance(ranges, list | tuple) else []
    numbers = tuple(number for pair in pairs if pair is not None for number in pair)
    if not pairs or None in pairs:
        raise ParameterError(f"{sampler} of {given!r}", f"write {{{sampler}: [{_SAMPLERS[sampler]}]}}")
    parameter = EnvParameter(sampler, numbers)
    for low, high in parameter.pairs:
        if high < (0 if sampler == "gaussian" else low):
            what = "the deviation is negative" if sampler == "gaussian" else f"{low:g} is above {high:g}"
            raise ParameterError(what, f"write {{{sampler}: [{_SAMPLERS[sampler]}]}}")
    return parameter


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and abs(value) <= _LARGEST


def _pair(given: object) -> tuple[float, float] | None:
    if not isinstance(given, list | tuple) or len(given) != 2:
        return None
    if not all(map(_is_number, given)):
        return None
    return float(given[0]), float(given[1])
