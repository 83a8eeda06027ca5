"""Each fault is found, by the check that is there for it and by no other; the texts: ``tests.messages``."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from algorithm.core.spec import ObsSpec
from algorithm.env.parameters.config import read_parameters
from algorithm.env.parameters.curricula import ParameterSource
from algorithm.env.spaces import Leaf
from algorithm.extras.check.checker import CHECKS, run_checks
from algorithm.extras.check.context import CheckConfig, CheckContext, CheckLimits, LearningKeys
from algorithm.extras.check.episode_stats import ObsStats
from algorithm.extras.check.finding import CheckResult, Level
from tests.extras.check import toys
from tests.lib.toys import Weighed
from tests.messages.check import checked


def faults(results: list[CheckResult]) -> dict[str, Level]:
    """``group title`` -> level of all that is not OK, less what could not be looked at because of it."""
    return {
        f"{one.group} {one.title}": one.level
        for one in results
        if one.level > Level.OK and not all(f.what.startswith("not checked") for f in one.findings)
    }


class Balance(toys.Sound):
    """A constant reward is fine where episodes differ."""

    def _reward(self) -> float:
        return 1.0


@pytest.mark.parametrize("toy", [toys.Sound, toys.Picture, toys.Choosy, toys.Strict, Balance])
def test_a_sound_environment_has_nothing_to_tell(toy: Any) -> None:
    limits = CheckLimits(steps=120, compared=40, seconds=60.0, total=300.0)
    results = list(run_checks(CheckContext(toy, CheckConfig(seed=3), limits)))
    assert faults(results) == {}
    assert [one.title for one in results] == [check.title for check in CHECKS]


@pytest.mark.fault("F14")
def test_a_fault_is_found_by_its_check_and_no_other() -> None:
    """All others: ``tests.messages``."""
    assert faults(checked(toys.Outside)) == {"observations bounds": Level.WARNING}


def test_a_parameter_that_it_does_not_have_is_told_as_a_training_tells_it() -> None:
    config = CheckConfig(parameters=ParameterSource(read_parameters({"m": {"value": 3.0, "set": "masss"}})))
    context = CheckContext(Weighed, config, CheckLimits(steps=12, compared=4))
    found = [one for result in run_checks(context) for one in result.findings if one.level is Level.ERROR]
    assert [(one.what, one.where, one.trace, one.code) for one in found] == [
        ("'masss' does not exist", "environment_parameters.m.set", "", 2)
    ]


class Leaving(toys.Sound):
    """The process would end with its tenth step."""

    def step(self, action: Any) -> Any:
        if self._steps == 9:
            sys.exit(0)
        return super().step(action)


def test_an_environment_that_would_end_the_program_is_an_error() -> None:
    errors = [f for result in checked(Leaving) for f in result.findings if f.level is Level.ERROR]
    assert errors and all("SystemExit(0) would end the program" in finding.why for finding in errors)


def test_an_error_of_an_essential_check_ends_all() -> None:
    assert [one.title for one in checked(toys.OldStep)] == ["made", "keeps going"]


@pytest.mark.parametrize(
    ("toy", "config", "titles"),
    [
        (toys.Vast, {"learning": lambda spec: LearningKeys(use_normalization=True)}, {"scale"}),
        (toys.Ceaseless, {"length_limit": 25}, {"end"}),
        (toys.Rich, {"learning": lambda spec: LearningKeys(reward_scaling="auto")}, {"scale"}),
        (toys.Poor, {"reward_scale": 1e6}, {"scale"}),
    ],
)
def test_a_configuration_that_mends_a_fault_counts(toy: Any, config: Any, titles: set[str]) -> None:
    checks = [check for check in CHECKS if check.title in titles]
    assert faults(checked(toy, checks=checks)) and faults(checked(toy, checks=checks, **config)) == {}


def test_a_slow_environment_is_checked_for_a_while_only() -> None:
    results = list(run_checks(CheckContext(toys.Sound, CheckConfig(), CheckLimits(steps=5, total=-1.0))))
    assert max(one.level for one in results) is Level.NOTE
    assert results[0].findings[0].what == "not checked: the time limit of -1 s has passed"


@pytest.mark.fault("F45")
def test_what_lies_outside_is_told_and_what_is_rounded_or_not_finite_is_not():
    def outside(*seen: list[float]) -> str:
        leaf = Leaf("a", ("a",), gym.spaces.Box(-1.0, 1.0, (2,)))
        stats = ObsStats("a", leaf, ObsSpec(("a",), ((2,),), ("float32",)))
        for value in seen:
            stats.add(np.array(value), "seed 1")
        return stats.outside

    assert outside() == outside([-1.0, 1.0 + 1e-7], [np.nan, 0.0], [np.inf, 0.0]) == ""
    assert outside([0.0, 0.0], [1.5, -3.0], [2.0, 0.0]) == "a[1] = -3 in [-1, 1]"
    assert outside([5.0, 0.0]) == "a[0] = 5 in [-1, 1]"
