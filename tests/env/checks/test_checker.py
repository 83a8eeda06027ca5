"""Each fault is found, by the check that is there for it and by no other; what is sound has none."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

from algorithm.env.checks.checker import CHECKS, Check, run_checks
from algorithm.env.checks.context import CheckConfig, CheckContext, CheckLimits
from algorithm.env.checks.cost import grown
from algorithm.env.checks.finding import CheckResult, Level, ok
from algorithm.env.checks.running_stats import RunningMoments
from tests import toys_check as toys

NOTE, WARNING, ERROR = Level.NOTE, Level.WARNING, Level.ERROR
LIMITS = CheckLimits(
    steps=240, compared=60, episodes=12, seconds=60.0, total=300.0
)  # counts end it, never the clock


def lab_of(make, **setting) -> CheckContext:
    return CheckContext(make, CheckConfig(seed_of=lambda episode: 1000 + episode, **setting), LIMITS)


def examined(make, **setting) -> list[CheckResult]:
    return list(run_checks(lab_of(make, **setting)))


def faults(checked: list[CheckResult]) -> dict[str, Level]:
    """``group title`` -> level of all that is not OK, less what could not be looked at because of it."""
    return {
        f"{one.group} {one.title}": one.level
        for one in checked
        if one.level > Level.OK and not all(f.what.startswith("not checked") for f in one.findings)
    }


def finding(checked: list[CheckResult], where: str):
    (found,) = [one for one in checked if f"{one.group} {one.title}" == where]
    return max(found.findings, key=lambda one: one.level)


@pytest.mark.parametrize("toy", [toys.Sound, toys.Picture, toys.Choosy, toys.Strict])
def test_a_sound_environment_has_nothing_to_tell(toy):
    checked = examined(toy)
    assert faults(checked) == {}
    assert [(one.group, one.title) for one in checked] == [(check.group, check.title) for check in CHECKS]
    assert "a resumed run is exact" in finding(checked, "seeds repeat").what
    assert "240 steps" in finding(checked, "environment keeps going").what


FAULTS = [
    (toys.Unbounded, "environment made", ERROR, "no finite bounds"),
    (toys.Unserved, "environment made", ERROR, "Text space, which is not supported"),
    (toys.Unmakeable, "environment made", ERROR, "fails in make"),
    (toys.OldReset, "environment interface", ERROR, "reset returns a ndarray instead of (observation, info)"),
    (toys.OldStep, "environment interface", ERROR, "step returns 4 values"),
    (toys.Seedless, "environment interface", ERROR, "does not take seed and options"),
    (toys.Uninformed, "environment interface", ERROR, "info of step is a list"),
    (toys.Numbered, "environment interface", WARNING, "terminated is a int, not a bool"),
    (
        lambda: NormalizeObservation(toys.Sound()),
        "environment wrappers",
        WARNING,
        "the wrapper NormalizeObservation keeps running statistics",
    ),
    (lambda: NormalizeReward(toys.Sound()), "environment wrappers", WARNING, "NormalizeReward keeps"),
    (toys.Invisible, "environment rendering", NOTE, "no render mode"),
    (toys.Misshapen, "observations shape", ERROR, "do not fit their space"),
    (toys.Partial, "observations shape", ERROR, "do not fit their space"),
    (toys.Overchosen, "observations shape", ERROR, "do not fit their space"),
    (toys.Doubled, "observations dtype", NOTE, "obs is float64, its space says float32"),
    (toys.Undefined, "observations finite", ERROR, "obs is not finite"),
    (toys.Outside, "observations bounds", WARNING, "up to 2 outside its bounds"),
    (toys.Stuck, "observations change", NOTE, "1 of 3 elements of obs never changed: 2"),
    (toys.Vast, "observations scale", WARNING, "obs[2] has mean"),
    (toys.RealPicture, "observations images", WARNING, "the image obs is float32"),
    (toys.Reusing, "observations own arrays", NOTE, "the array of obs is written to again"),
    (toys.Mighty, "actions bounds", WARNING, "has bounds of [-1e+06] to [1e+06]"),
    (toys.Lopsided, "actions bounds", NOTE, "not symmetric: [-1] to [3]"),
    (toys.Choiceless, "actions bounds", WARNING, "leave no choice"),
    (toys.Deaf, "actions effect", WARNING, "as doing nothing"),
    (toys.Worthless, "rewards finite", ERROR, "a reward is not finite"),
    (toys.Boxed, "rewards finite", NOTE, "not a plain number"),
    (toys.Barren, "rewards differ", WARNING, "all 240 rewards were 0"),
    (toys.Rich, "rewards scale", WARNING, "a step"),
    (toys.Poor, "rewards scale", WARNING, "no reward of a step was beyond"),
    (toys.Ceaseless, "episodes end", WARNING, "no episode ended within 240 steps"),
    (toys.Unending, "episodes end", NOTE, "the task itself never ended: all 8"),
    (toys.Both, "episodes time limit", WARNING, "8 of 8 episodes were terminated and truncated"),
    (toys.Punctual, "episodes time limit", WARNING, "all 8 episodes were terminated after exactly 30 steps"),
    (toys.Brief, "episodes length", NOTE, "lasts 2 steps"),
    (toys.Unseeded, "seeds repeat", WARNING, "a resumed run is not exact"),
    (toys.Remembering, "seeds repeat", WARNING, "a resumed run is not exact"),
    (toys.Individual, "seeds repeat", WARNING, "a resumed run is not exact"),
    (toys.Imprinted, "seeds repeat", WARNING, "a resumed run is not exact"),
    (toys.Borrowing, "seeds generator", WARNING, "the random numbers of the whole process: random"),
    (toys.Leaky, "cost growth", WARNING, "memory grows: 1,0"),
    (toys.Opening, "cost growth", WARNING, "11 open files more"),
    (toys.Spinning, "cost growth", WARNING, "threads more"),
    (toys.Untidy, "cost close", NOTE, "3 closed instances left 3 open files behind"),
]


@pytest.mark.fault("F14")
@pytest.mark.parametrize(
    ("toy", "where", "level", "words"), FAULTS, ids=lambda part: getattr(part, "__name__", "")
)
def test_a_fault_is_found_by_its_check_and_no_other(toy, where, level, words):
    checked = examined(toy)
    if where == "cost close" and not faults(checked):  # what other tests had open was closed meanwhile
        checked = examined(toy)
    assert faults(checked) == {where: level}
    found = finding(checked, where)
    assert words in found.what
    assert found.why
    if level > NOTE:
        assert found.fix


def test_where_nothing_is_seen_seeds_cannot_differ_either():
    checked = examined(toys.Blind)
    assert faults(checked) == {"observations change": WARNING, "seeds differ": NOTE}
    assert finding(checked, "observations change").what == "obs never changed: [0, 0, 0]"


@pytest.mark.fault("F12")
def test_a_failure_is_told_once_with_its_trace():
    checked = examined(toys.Raising)
    assert faults(checked) == {"environment keeps going": ERROR}
    found = finding(checked, "environment keeps going")
    assert found.why == "RuntimeError: the wheel came off"
    assert found.where.startswith("seed 1000, step 10, action [")
    assert "in step" in found.trace and "toys_check.py" in found.trace and "context.py" not in found.trace
    again = finding(checked, "seeds repeat")
    assert again.level is NOTE and again.what == "not checked: the environment fails in step, as above"


def test_a_copy_that_cannot_be_closed():
    found = finding(examined(toys.Unclosable), "environment made")
    assert (found.level, found.what) == (ERROR, "the environment fails in close")


def test_a_mask_without_a_choice():
    checked = examined(toys.Closed)
    assert faults(checked)["environment keeps going"] is ERROR
    assert finding(checked, "environment keeps going").why == "action_mask leaves no choice in branch 0"


def test_a_reward_that_is_no_number():
    checked = examined(toys.Rewardless)
    assert faults(checked)["environment keeps going"] is ERROR
    assert finding(checked, "environment keeps going").what == "a reward is not a number"


def test_a_start_that_is_always_the_same_is_only_worth_a_note():
    assert faults(examined(toys.Alike)) == {"seeds differ": NOTE}


def test_a_constant_reward_in_episodes_of_one_length_teaches_nothing():
    checked = examined(toys.Monotonous)
    assert faults(checked) == {"episodes end": NOTE, "rewards differ": WARNING}
    assert (
        finding(checked, "rewards differ").what
        == "every reward was 1, and no episode was longer than another"
    )


def test_a_constant_reward_is_fine_where_episodes_differ():
    class Balance(toys.Sound):
        def _reward(self) -> float:
            return 1.0

    checked = examined(Balance)
    assert faults(checked) == {}
    assert finding(checked, "rewards differ").what == "always 1: what counts is how long an episode lasts"


def test_what_ends_an_essential_check_ends_all():
    assert [one.title for one in examined(toys.Unbounded)] == ["made"]
    assert [one.title for one in examined(toys.OldStep)] == ["made", "interface"]


def test_what_was_configured_counts():
    assert faults(examined(toys.Vast, normalised=True)) == {}
    assert faults(examined(toys.Sound, vector_class=True, n_envs=3)) == {"environment vector class": NOTE}
    checked = examined(toys.Ceaseless, length_limit=25)
    assert faults(checked) == {}
    assert finding(checked, "episodes end").what == "all 9 cut off by max_step_each_iter at 25"


def test_whoever_is_slow_is_looked_at_for_a_while_only():
    context = CheckContext(
        toys.Sound, CheckConfig(seed_of=lambda episode: episode), CheckLimits(steps=5, total=-1.0)
    )
    checked = list(run_checks(context))
    assert max(one.level for one in checked) is NOTE
    assert finding(checked, "environment made").what == "not checked: -1 s are over"


def test_everybody_is_told_what_begins():
    begun: list[str] = []
    checks = [Check("a", "b", lambda context: iter([ok("fine")])), Check("a", "c", lambda context: iter([]))]
    found = list(run_checks(lab_of(toys.Sound), checks, on_start=lambda check: begun.append(check.title)))
    assert begun == ["b", "c"]
    assert [one.level for one in found] == [Level.OK, Level.OK]


def test_moments_are_those_of_all_values(rng):
    values = rng.normal(1e6, 1.0, (100, 3))  # far from 0, where a sum of squares would lose everything
    moments = RunningMoments((3,))
    for value in values:
        moments.add(value)
    np.testing.assert_allclose(moments.mean, values.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.std, values.std(0), rtol=1e-6)
    assert (moments.low == values.min(0)).all() and (moments.high == values.max(0)).all()


@pytest.mark.parametrize(
    ("weights", "bytes_more"),
    [
        ([0, 5, 6, 10, 11, 12, 20, 21, 22], 12),  # from 10 to 22 in five episodes
        ([0, 5, 6, 10, 11, 20, 20, 21, 22], 0),  # 20 overlaps
        ([0, 50, 60, 70, 70, 70, 70, 70, 70], 0),  # a cache that has filled
        ([0, 0, 0, 0, 1, 1, 2, 2, 3], 0),  # less than what counts
        ([0, 10, 20], 0),  # too few
    ],
)
def test_memory_grows_only_beyond_doubt(weights, bytes_more):
    mb = 2**20
    more, per_episode = grown([weight * mb for weight in weights])
    assert (more, per_episode) == (bytes_more * mb, bytes_more * mb / 5)
