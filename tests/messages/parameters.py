"""Parameters that an environment does not have, and lessons that cannot be in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from algorithm.env.gym import GymEnv
from algorithm.env.parameters.config import EnvParameters, read_parameters
from algorithm.env.parameters.curricula import check_lessons, refuse_lessons
from tests.lib.toys import Weighed
from tests.messages import refusal

TARGETS: tuple[Mapping[str, str | None], ...] = (
    {"g": "gravty"},
    {"g": "model.wind"},
)


def messages() -> Iterator[tuple[str, str]]:
    """Yield targets, or lessons, and what is said of them."""
    for targets in TARGETS:
        yield str(targets), refusal(lambda targets=targets: _begin(targets))
    for behaviour, behaviours in (("Robot", ["Wolf", "Sheep?team=0"]), (None, ["Wolf", "Sheep"])):
        lessons = _lessons(behavior=behaviour, require_reset=True)
        yield (
            f"behavior {behaviour} of {behaviours}",
            refusal(lambda lessons=lessons, behaviours=behaviours: check_lessons(lessons, behaviours)),
        )
    yield (
        "several processes",
        refusal(lambda: refuse_lessons(_lessons(), "num_processes above 1", "num_processes: 1")),
    )


def _begin(targets: Mapping[str, str | None]) -> None:
    GymEnv(gym.wrappers.TimeLimit(Weighed(), 5), parameters=targets).reset(1, np.zeros(len(targets)))


def _lessons(**more: Any) -> EnvParameters:
    end = {"threshold": 1.0, **{key: value for key, value in more.items() if value is not None}}
    lessons = [{"name": "low", "value": 0, "completion_criteria": end}, {"name": "high", "value": 1}]
    return read_parameters({"height": {"curriculum": lessons}})
