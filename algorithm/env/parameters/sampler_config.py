"""Samplers of a parameter: their keys, and their quantile functions: one uniform number makes a value."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Annotated, Literal, Protocol

from pydantic import BeforeValidator, Discriminator, Strict, Tag, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from algorithm.core.fields import Block, Finite, NotNegative


def refusal(why: str, fix: str) -> PydanticCustomError:
    """Return the error of a value of ``environment_parameters``: the reason, and what to do."""
    return PydanticCustomError("parameter", "{why}", {"why": why, "fix": fix})


class ParameterSampler(Protocol):
    """The distribution of a value."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """Numbers that define it, in the order of Unity's messages."""

    def quantile(self, u: float) -> float:
        """Return the value below which a share u of all draws lies, 0 < u < 1."""


class Constant(Block):
    """One value, always."""

    value: Finite

    @property
    def numbers(self) -> tuple[float, ...]:
        """The value."""
        return (self.value,)

    def quantile(self, u: float) -> float:
        """Return the value."""
        return self.value


class UniformParameters(Block):
    """Bounds of a uniform distribution."""

    min_value: Finite
    max_value: Finite

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_value > self.max_value:
            raise refusal(
                f"min_value {self.min_value:g} is above max_value {self.max_value:g}", "swap the two"
            )
        return self


class Uniform(Block):
    """Each value of an interval is as likely."""

    sampler_type: Literal["uniform"]
    sampler_parameters: UniformParameters

    @property
    def numbers(self) -> tuple[float, ...]:
        """Lower and upper bound."""
        return self.sampler_parameters.min_value, self.sampler_parameters.max_value

    def quantile(self, u: float) -> float:
        """Return min + u (max − min)."""
        low, high = self.numbers
        return low + u * (high - low)


class GaussianParameters(Block):
    """Moments of a normal distribution."""

    mean: Finite
    st_dev: NotNegative


class Gaussian(Block):
    """A normal distribution."""

    sampler_type: Literal["gaussian"]
    sampler_parameters: GaussianParameters

    @property
    def numbers(self) -> tuple[float, ...]:
        """Mean and standard deviation."""
        return self.sampler_parameters.mean, self.sampler_parameters.st_dev

    def quantile(self, u: float) -> float:
        """Return mean + deviation · Φ⁻¹(u)."""
        mean, deviation = self.numbers
        return mean + deviation * _STANDARD.inv_cdf(u)


_STANDARD = NormalDist()


def _pair(interval: object) -> object:
    if not isinstance(interval, list | tuple) or len(interval) != 2:
        raise refusal(
            f"the interval {interval!r:.40} is no pair", "write intervals as pairs: [[1, 2], [4, 5]]"
        )
    return interval


Pair = Annotated[tuple[Finite, Finite], Strict(False), BeforeValidator(_pair)]
"""An interval [low, high]."""


class MultiRangeParameters(Block):
    """Intervals of a distribution over several of them."""

    intervals: Annotated[tuple[Pair, ...], Strict(False)]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for low, high in self.intervals:
            if low > high:
                raise refusal(f"in the interval [{low:g}, {high:g}] {low:g} is above {high:g}", "swap them")
        if all(low == high for low, high in self.intervals):
            raise refusal("no interval has a length", "write an interval [low, high] with low below high")
        return self


class MultiRangeUniform(Block):
    """Each value of several intervals is as likely: an interval is chosen by its length, as in ML-Agents."""

    sampler_type: Literal["multirangeuniform"]
    sampler_parameters: MultiRangeParameters

    @property
    def numbers(self) -> tuple[float, ...]:
        """Bounds of the intervals, one after the other."""
        return tuple(bound for interval in self.sampler_parameters.intervals for bound in interval)

    def quantile(self, u: float) -> float:
        """Return the value at a share u of the intervals, laid end to end."""
        intervals = self.sampler_parameters.intervals
        left = u * sum(high - low for low, high in intervals)
        for low, high in intervals:
            if left < high - low:
                return low + left
            left -= high - low
        return intervals[-1][1]  # rounded


def _as_constant(value: object) -> object:
    if isinstance(value, Mapping):
        raise refusal("there is no `sampler_type`", f"there are {', '.join(SAMPLERS)}")
    return value if isinstance(value, Constant) else {"value": value}


def _tag(value: object) -> str:
    """Return the kind of a value as it was written: that of a sampler, else a number."""
    written = value if isinstance(value, Mapping) else vars(value) if isinstance(value, Block) else {}
    return str(written.get("sampler_type", "number"))


SAMPLERS = ("uniform", "gaussian", "multirangeuniform")
"""Values of ``sampler_type``."""

ParameterValue = Annotated[
    Annotated[Constant, BeforeValidator(_as_constant), Tag("number")]
    | Annotated[Uniform, Tag("uniform")]
    | Annotated[Gaussian, Tag("gaussian")]
    | Annotated[MultiRangeUniform, Tag("multirangeuniform")],
    Discriminator(_tag),
]
"""A number or a sampler, from the form in which it is written."""
