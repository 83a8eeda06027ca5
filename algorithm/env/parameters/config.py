"""The keys of ``environment_parameters``, spelt as ML-Agents does; ``set`` is our only addition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, model_validator
from typing_extensions import Self

from algorithm.core.fields import AtLeastOne, Block, Finite
from algorithm.env.parameters.sampler_config import (
    ParameterSampler,
    ParameterValue,
    refusal,
)

KEY = "environment_parameters"
FORMS = (
    "write a number, {sampler_type: uniform, sampler_parameters: {min_value: 0, max_value: 1}} or "
    "{curriculum: [{name: …, value: …, completion_criteria: {…}}, …]}"
)


class CompletionCriteria(Block):
    """End of a lesson: a measure above a threshold, once it has lasted so many episodes.

    behavior: whose episodes count; None: that of the only behaviour
    measure:  mean return, or share of max_step
    min_lesson_length: episodes, and over at most how many of them the mean is taken
    signal_smoothing: a quarter of the former value is kept, see :class:`.curricula.Curricula`
    require_reset: the next lesson begins at once, and every open episode is truncated
    """

    behavior: str | None = None
    measure: Literal["reward", "progress"] = "reward"
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
    def _long_form(cls, given: object) -> object:
        """Return a number or a sampler as the value of a mapping."""
        if not isinstance(given, Mapping):
            return {"value": given}
        sampler = {key: given[key] for key in ("sampler_type", "sampler_parameters") if key in given}
        if not sampler or "value" in given:
            return given
        return {"value": sampler, **{key: part for key, part in given.items() if key not in sampler}}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        lessons = self.curriculum or ()
        if (self.value is None) == (not lessons):
            raise refusal("it needs a value or a curriculum, and not both", FORMS)
        names = [lesson.name for lesson in lessons]
        for name in names:
            if names.count(name) > 1:
                raise refusal(f"two lessons are called {name!r}", "give each a name of its own")
        for lesson in lessons[:-1]:
            if lesson.completion_criteria is None:
                raise refusal(
                    f"the lesson {lesson.name!r} has no completion_criteria and is not the last",
                    "say when it ends: completion_criteria: {measure: reward, threshold: …, "
                    "min_lesson_length: …}",
                )
        if lessons and lessons[-1].completion_criteria is not None:
            raise refusal(
                f"the last lesson, {lessons[-1].name!r}, has completion_criteria",
                "remove them: no lesson follows",
            )
        return self

    def value_in(self, lesson: str | None) -> ParameterSampler:
        """Return the value in a lesson, or the only one."""
        if self.value is not None:
            return self.value
        return next(one.value for one in self.curriculum or () if one.name == lesson)

    @property
    def values(self) -> list[ParameterSampler]:
        """The values of all lessons, or the only one."""
        return [one.value for one in self.curriculum or ()] if self.value is None else [self.value]

    @property
    def lessons(self) -> list[str]:
        """Names of its lessons; none without a curriculum."""
        return [one.name for one in self.curriculum or ()]


EnvParameters = Mapping[str, EnvParameter]
"""Name -> parameter, in the order of the file."""


def read_parameters(given: Mapping[str, Any]) -> dict[str, EnvParameter]:
    """Return ``environment_parameters``, which :func:`wrong_parameters` has found nothing wrong with."""
    return {str(name): EnvParameter.model_validate(value) for name, value in given.items()}


def criteria_of(parameters: EnvParameters) -> Iterator[tuple[str, str, CompletionCriteria]]:
    """Yield parameter, name of a lesson and what ends it, for each lesson that ends."""
    for name, parameter in parameters.items():
        for lesson in parameter.curriculum or ():
            if lesson.completion_criteria is not None:
                yield name, lesson.name, lesson.completion_criteria


def lessons_by_name(parameters: EnvParameters) -> dict[str, list[str]]:
    """Return parameter with a curriculum -> names of its lessons."""
    return {name: one.lessons for name, one in parameters.items() if one.lessons}


def first_lessons(parameters: EnvParameters) -> dict[str, str]:
    """Return parameter -> the first of its lessons."""
    return {name: one.lessons[0] for name, one in parameters.items() if one.lessons}


def last_lessons(parameters: EnvParameters) -> dict[str, str]:
    """Return parameter -> the last of its lessons."""
    return {name: one.lessons[-1] for name, one in parameters.items() if one.lessons}
