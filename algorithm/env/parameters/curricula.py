"""Parameter values of an episode, from its seed and the lessons; lessons of curricula and their ends."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from algorithm.core.data import Episode, State
from algorithm.core.errors import UsageError
from algorithm.core.seeding import stream_seed
from algorithm.core.steps import Double
from algorithm.env.config import without_team
from algorithm.env.parameters.config import (
    KEY,
    CompletionCriteria,
    Constant,
    EnvParameters,
    ParameterSampler,
)

_KEPT = 0.25  # of the former value, with signal_smoothing


def criteria_of(parameters: EnvParameters) -> Iterator[tuple[str, str, CompletionCriteria]]:
    """Yield (parameter, name of a lesson, criteria of its end) for each lesson that ends."""
    for name, parameter in parameters.items():
        for lesson in parameter.curriculum or ():
            if lesson.completion_criteria is not None:
                yield name, lesson.name, lesson.completion_criteria


def first_lessons(parameters: EnvParameters) -> dict[str, str]:
    """Return parameter -> the first of its lessons."""
    return {name: parameter.lessons[0] for name, parameter in parameters.items() if parameter.lessons}


@dataclass(frozen=True)
class LessonChange:
    """A parameter that has gone from one lesson to the next. reset: every open episode ends."""

    parameter: str
    before: str
    after: str
    reset: bool


class Curricula:
    """The current lesson of each parameter with a curriculum, and the episodes that end lessons.

    A lesson ends where its measure is above the threshold, with at least min_lesson_length episodes since the
    last change of any lesson: another value anywhere makes other returns. An episode that was open at a
    change belongs to the lesson before and does not count.

    The measure ``reward`` is the mean return r̄ of the last episodes, at most as many as the largest
    min_lesson_length of that behaviour (ML-Agents' reward buffer). With signal_smoothing it is
    m = 0.25·m_before + 0.75·r̄, taken whenever episodes end. A lesson's first m is r̄: ML-Agents begins at 0,
    which ends a lesson too early where returns are negative. The measure ``elo`` is the rating after the last
    game of self-play.
    """

    def __init__(self, parameters: EnvParameters) -> None:
        self._curricula = {
            name: parameter.curriculum for name, parameter in parameters.items() if parameter.curriculum
        }
        self._lessons = first_lessons(parameters)
        longest: dict[str, int] = {}  # min_lesson_length, by behaviour; "" is the only one
        for _, _, end in criteria_of(parameters):
            behaviour = end.behavior or ""
            longest[behaviour] = max(longest.get(behaviour, 1), end.min_lesson_length)
        self._returns = {behaviour: deque[float](maxlen=length) for behaviour, length in longest.items()}
        self._elos: dict[str, float] = {}  # by behaviour
        self._smoothed: dict[str, float] = {}  # parameter -> the measure of its lesson so far
        self._fresh = set[str]()  # behaviours with episodes since the last call of advance()
        self._former = set[tuple[str, int]]()  # agents whose open episode began in an earlier lesson

    @property
    def lessons(self) -> dict[str, str]:
        """Parameter -> name of its current lesson."""
        return dict(self._lessons)

    @property
    def numbers(self) -> dict[str, int]:
        """Parameter -> number of its current lesson, from 0 on."""
        return {name: self._names(name).index(lesson) for name, lesson in self._lessons.items()}

    def add(self, episodes: Iterable[Episode]) -> None:
        """Count the episodes that ended with a step."""
        for episode in episodes:
            key = (episode.behaviour, episode.agent)
            if key in self._former:
                self._former.remove(key)
                continue
            names = {"", episode.behaviour, without_team(episode.behaviour)}
            for behaviour in names & self._returns.keys():
                self._returns[behaviour].append(episode.total)
                if "elo" in episode.infos:
                    self._elos[behaviour] = episode.infos["elo"]
                self._fresh.add(behaviour)

    def advance(self, progress: float) -> list[LessonChange]:
        """Begin the next lesson of each parameter whose lesson has ended; return the changes.

        Call it after every step, and after a change :meth:`pass_over` with the agents of open episodes.
        progress: share of max_step that is done
        """
        changes = []
        for name, lesson in self._lessons.items():
            number = self._names(name).index(lesson)
            criteria = self._curricula[name][number].completion_criteria
            if criteria is not None and self._is_over(name, criteria, progress):
                after = self._names(name)[number + 1]
                changes.append(LessonChange(name, lesson, after, criteria.require_reset))
        self._fresh.clear()
        if changes:
            self._lessons |= {change.parameter: change.after for change in changes}
            self._count_anew()
        return changes

    def _count_anew(self) -> None:
        """Forget the episodes of the lessons that have ended."""
        for values in self._returns.values():
            values.clear()
        self._smoothed.clear()
        self._former.clear()

    def pass_over(self, agents: Iterable[tuple[str, int]]) -> None:
        """Exclude the open episodes of these agents, (behaviour, id): they began in an older lesson."""
        self._former = set(agents)

    def state(self) -> State:
        """Return the lessons, and the returns that count towards their ends."""
        return State(
            meta={
                "lessons": self._lessons,
                "names": {name: self._names(name) for name in self._curricula},
                "returns": {name: list(values) for name, values in self._returns.items()},
                "elos": self._elos,
                "smoothed": self._smoothed,
                "former": [list(key) for key in sorted(self._former)],
            }
            if self._curricula
            else {}
        )

    def load_state(self, state: State) -> None:
        """Continue from a result of :meth:`state`. Raises ValueError for lessons that no longer exist.

        A parameter that had no curriculum begins with its first lesson.
        """
        saved = state.meta.get("names", {})
        for name, names in saved.items():
            now = self._names(name) if name in self._curricula else []
            if names != now:
                is_now = ", ".join(now) or "none"
                raise ValueError(f"the lessons of {name} were {', '.join(names)}, and now are {is_now}")
        self._lessons |= state.meta.get("lessons", {})
        for name, values in self._returns.items():
            values.extend(state.meta.get("returns", {}).get(name, ()))
        self._elos = dict(state.meta.get("elos", {}))
        self._smoothed = dict(state.meta.get("smoothed", {}))
        self._former = {(name, agent) for name, agent in state.meta.get("former", ())}

    def _is_over(self, name: str, criteria: CompletionCriteria, progress: float) -> bool:
        """Return whether the measure of a lesson is above its threshold, after enough episodes."""
        behaviour = criteria.behavior or ""
        returns = self._returns[behaviour]
        if len(returns) < criteria.min_lesson_length:
            return False
        if criteria.measure == "progress":
            return progress > criteria.threshold
        if criteria.measure == "elo":
            return self._elos.get(behaviour, -math.inf) > criteria.threshold
        if behaviour not in self._fresh:
            return False
        measure = sum(returns) / len(returns)
        if criteria.signal_smoothing:
            before = self._smoothed.get(name, measure)
            measure = self._smoothed[name] = _KEPT * before + (1 - _KEPT) * measure
        return measure > criteria.threshold

    def _names(self, parameter: str) -> list[str]:
        """Return the names of a curriculum's lessons."""
        return [lesson.name for lesson in self._curricula[parameter]]


def check_lessons(parameters: EnvParameters, behaviours: Collection[str]) -> None:
    """Raise UsageError for a criterion that names no behaviour of the environment, or none of several."""
    known = {*behaviours, *map(without_team, behaviours)}
    for name, lesson, end in criteria_of(parameters):
        if end.behavior in known or (end.behavior is None and len(behaviours) == 1):
            continue
        fault = (
            f"names {end.behavior!r}" if end.behavior else "does not name the behaviour whose episodes end it"
        )
        raise UsageError(
            f"the lesson {lesson!r} of {name} {fault}",
            where=f"{KEY}.{name}.curriculum",
            why=f"the environment's behaviours are {', '.join(map(repr, behaviours))}",
            fix="write one of them as completion_criteria.behavior",
        )


def refuse_lessons(parameters: EnvParameters, where: str, instead: str) -> None:
    """Raise UsageError for a curriculum where environments are in processes that learn by themselves."""
    for name, lesson, _ in criteria_of(parameters):
        raise UsageError(
            f"the lesson {lesson!r} of {name} cannot end",
            where=f"{KEY}.{name}.curriculum, with {where}",
            why="the environments are in other processes, which begin no next lesson",
            fix=f"give it one value, or set {instead}",
        )


_NONE: EnvParameters = MappingProxyType({})


class ParameterSource:
    """The K parameters of episodes, each drawn from the episode's seed, the same in any process.

    parameters: of the configuration; lessons: parameter -> name of its lesson, by default the first of each

    targets:  parameter -> attribute or method that takes its value; None: an option of ``reset``
    samplers: parameter -> its current distribution
    """

    def __init__(self, parameters: EnvParameters = _NONE, lessons: Mapping[str, str] | None = None) -> None:
        self._parameters = dict(parameters)
        self.names = tuple(parameters)
        self.targets: Mapping[str, str | None] = {
            name: parameter.set for name, parameter in parameters.items()
        }
        self.renew(first_lessons(parameters) if lessons is None else lessons)

    def renew(self, lessons: Mapping[str, str]) -> None:
        """Draw from these lessons, parameter -> name, from now on."""
        self.samplers: Mapping[str, ParameterSampler] = {
            name: parameter.value_in(lessons.get(name)) for name, parameter in self._parameters.items()
        }

    def draw(self, seed: int) -> Double:
        """Return the values [K] of the episode of that seed.

        Each is the quantile of a number in (0, 1) that belongs to (seed, parameter) alone.
        """
        values = [
            sampler.value if isinstance(sampler, Constant) else sampler.quantile(_uniform(seed, name))
            for name, sampler in self.samplers.items()
        ]
        return np.array(values, np.float64)


def _uniform(seed: int, name: str) -> float:
    """Return a uniform number for (seed, parameter), on a grid of 2⁻⁵² without 0 and 1."""
    return ((stream_seed(seed, "parameters", name) >> 11) + 0.5) / 2**52
