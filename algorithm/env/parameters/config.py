"""The keys of ``environment_parameters``, spelt as ML-Agents does; ``set`` is our only addition."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, Discriminator, Field, Strict, Tag, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from algorithm.core.fields import AtLeastOne, Block, Finite, NotNegative

KEY = "environment_parameters"
FORMS = (
    "write a number, {sampler_type: uniform, sampler_parameters: {min_value: 0, max_value: 1}} or "
    "{curriculum: [{name: …, value: …, completion_criteria: {…}}, …]}"
)


def refusal(why: str, fix: str) -> PydanticCustomError:
    """Return the error for a value of ``environment_parameters``, with a reason and advice."""
    return PydanticCustomError("parameter", "{why}", {"why": why, "fix": fix})


class ParameterSampler(Protocol):
    """The distribution of a value."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """Numbers that define the distribution, in the order of Unity's messages."""

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
        return tuple(vars(self.sampler_parameters).values())

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
            f"the interval {interval!r:.40} is not a pair", "write intervals as pairs: [[1, 2], [4, 5]]"
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
            raise refusal("all intervals are empty", "write an interval [low, high] with low below high")
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
        raise refusal("there is no `sampler_type`", f"use one of {', '.join(SAMPLERS)}")
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


class CompletionCriteria(Block):
    """End of a lesson: a measure above a threshold, once it has lasted so many episodes.

    behavior: behaviour whose episodes count; None: the only behaviour
    measure:  mean return, share of max_step, or rating of self-play
    min_lesson_length: episodes that a lesson lasts at least, and over at most which the mean is taken
    signal_smoothing: a quarter of the former value is kept, see :class:`.curricula.Curricula`
    require_reset: the next lesson begins at once, and every open episode is truncated
    """

    behavior: str | None = None
    measure: Literal["reward", "progress", "elo"] = "reward"
    threshold: Finite
    min_lesson_length: Annotated[AtLeastOne, Field(le=1_000_000_000)] = 1
    signal_smoothing: bool = True
    require_reset: bool = False

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.measure == "progress" and not 0 < self.threshold < 1:
            raise refusal(
                f"threshold {self.threshold:g} of measure: progress",
                "progress is the share of base_config.max_step: write a threshold between 0 and 1",
            )
        return self


class LessonConfig(Block):
    """A lesson of a curriculum."""

    name: Annotated[str, Field(min_length=1)]
    value: ParameterValue
    completion_criteria: CompletionCriteria | None = None


class EnvParameter(Block):
    """A parameter: one value, or lessons with a value each.

    set: attribute or method of the environment that takes the value, such as ``model.opt.gravity.2``;
         None: the option of that name of ``reset``
    """

    value: ParameterValue | None = None
    curriculum: Annotated[tuple[LessonConfig, ...], Strict(False)] | None = None
    set: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _long_form(cls, written: object) -> object:
        """Convert a bare number or sampler to a mapping with that ``value``."""
        if not isinstance(written, Mapping):
            return {"value": written}
        sampler = {key: written[key] for key in ("sampler_type", "sampler_parameters") if key in written}
        if not sampler or "value" in written:
            return written
        return {"value": sampler, **{key: part for key, part in written.items() if key not in sampler}}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Check that there is a value or a curriculum, whose lessons but the last one end."""
        lessons = self.curriculum or ()
        if (self.value is None) == (not lessons):
            raise refusal("it needs either a value or a curriculum", FORMS)
        names = [lesson.name for lesson in lessons]
        for name in names:
            if names.count(name) > 1:
                raise refusal(f"two lessons are called {name!r}", "give each its own name")
        for lesson in lessons[:-1]:
            if lesson.completion_criteria is None:
                raise refusal(
                    f"the lesson {lesson.name!r} has no completion_criteria and is not the last",
                    "set when it ends: completion_criteria: {measure: reward, threshold: …, "
                    "min_lesson_length: …}",
                )
        if lessons and lessons[-1].completion_criteria is not None:
            raise refusal(
                f"the last lesson, {lessons[-1].name!r}, has completion_criteria",
                "remove them: no lesson follows",
            )
        return self

    def value_in(self, lesson: str | None) -> ParameterSampler:
        """Return the distribution of the value in a lesson, or the only one."""
        if self.value is not None:
            return self.value
        return next(entry.value for entry in self.curriculum or () if entry.name == lesson)

    @property
    def values(self) -> list[ParameterSampler]:
        """The distributions of all lessons, or the only one."""
        return [lesson.value for lesson in self.curriculum or ()] if self.value is None else [self.value]

    @property
    def lessons(self) -> list[str]:
        """Names of its lessons; none without a curriculum."""
        return [lesson.name for lesson in self.curriculum or ()]


EnvParameters = Mapping[str, EnvParameter]
"""Name -> parameter, in the order of the file."""


def read_parameters(values: Mapping[str, Any]) -> dict[str, EnvParameter]:
    """Return ``environment_parameters`` as objects; :func:`wrong_parameters` must have found no fault."""
    return {str(name): EnvParameter.model_validate(value) for name, value in values.items()}


def lessons_by_name(parameters: EnvParameters) -> dict[str, list[str]]:
    """Return parameter with a curriculum -> names of its lessons."""
    return {name: parameter.lessons for name, parameter in parameters.items() if parameter.lessons}


def last_lessons(parameters: EnvParameters) -> dict[str, str]:
    """Return parameter -> the last of its lessons."""
    return {name: parameter.lessons[-1] for name, parameter in parameters.items() if parameter.lessons}
