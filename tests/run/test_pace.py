"""Updates owed and things due."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.run.pace import Every, UpdatePace


@given(st.sampled_from([0.1, 0.25, 1 / 3, 1.0, 2.5, 7.0]), st.integers(1, 16), st.integers(0, 50))
def test_the_ratio_is_exact_whatever_the_number_of_environments(ratio, n_envs, start_step):
    pace, step, done = UpdatePace(ratio, start_step), 0, 0
    for _ in range(200):
        step += n_envs
        done += pace.owed(step)
        assert done == math.floor(ratio * max(0, step - start_step) + 1e-9)
    if done:
        assert pace.achieved(step, done) == pytest.approx(ratio, abs=1.0 / (step - start_step))


def test_what_could_not_be_done_remains_owed():
    pace = UpdatePace(1.0, 0)
    assert pace.owed(3) == 3
    pace.carry_over(2)
    assert pace.owed(4) == 3


def test_deferred_steps_are_not_owed_for():
    pace = UpdatePace(1.0, 0)
    assert pace.owed(3) == 3
    pace.defer(3)
    assert [pace.owed(4), pace.owed(6)] == [1, 2]


def test_nothing_is_achieved_before_learning():
    assert math.isnan(UpdatePace(1.0, 100).achieved(100, 0))


def test_due_once_per_crossing():
    every = Every(10)
    assert [every.due(count) for count in (0, 9, 10, 11, 35, 36, 40)] == [
        False, False, True, False, True, False, True,
    ]  # fmt: skip
    assert not Every(-1).due(10**9)
