"""Values of an episode: a pure function of its seed and of the lessons."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from algorithm.core.data import Double
from algorithm.core.seeding import stream_seed
from algorithm.env.parameters.config import EnvParameters, first_lessons
from algorithm.env.parameters.sampler_config import Constant, ParameterSampler

_NONE: EnvParameters = MappingProxyType({})


class ParameterSource:
    """Draws the K parameters of an episode from its seed, so that any process draws alike.

    parameters: of the configuration; lessons: parameter -> name, by default the first of each

    targets:  parameter -> attribute or method that takes its value; None: an option of ``reset``
    samplers: parameter -> its distribution now
    """

    def __init__(self, parameters: EnvParameters = _NONE, lessons: Mapping[str, str] | None = None) -> None:
        self._parameters = dict(parameters)
        self.names = tuple(parameters)
        self.targets: Mapping[str, str | None] = {name: one.set for name, one in parameters.items()}
        self.renew(first_lessons(parameters) if lessons is None else lessons)

    def renew(self, lessons: Mapping[str, str]) -> None:
        """Draw from these lessons, parameter -> name, from here on."""
        self.samplers: Mapping[str, ParameterSampler] = {
            name: one.value_in(lessons.get(name)) for name, one in self._parameters.items()
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
    """Return the number of (seed, parameter), on a grid of 2⁻⁵² that holds neither 0 nor 1."""
    return ((stream_seed(seed, "parameters", name) >> 11) + 0.5) / 2**52
