"""Updates owed and things due."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.agents.schedules import Every, FifoUpdates, RatioUpdates, rate_factor
from algorithm.keys.run import RunConfig


@pytest.mark.parametrize(
    ("schedule", "end", "factors"),
    [
        ("constant", 0.0, [1.0, 1.0, 1.0, 1.0]),
        ("linear", 0.0, [1.0, 0.75, 0.5, 0.0]),
        ("linear", 0.5, [1.0, 0.875, 0.75, 0.5]),
        ("cosine", 0.0, [1.0, 0.8535534, 0.5, 0.0]),  # a quarter: (1 + √½) / 2
        ("cosine", 0.5, [1.0, 0.9267767, 0.75, 0.5]),
    ],
)
def test_step_sizes_at_the_beginning_a_quarter_a_half_and_the_end(schedule, end, factors):
    keys = RunConfig(learning_rate_schedule=schedule, learning_rate_end=end)
    assert [rate_factor(keys, step, 80) for step in (0, 20, 40, 80)] == pytest.approx(factors)
    held = keys.model_copy(update={"learning_rate_hold": 20})
    assert [rate_factor(held, step, 100) for step in (0, 20, 40, 60, 100)] == pytest.approx([1.0, *factors])
    assert rate_factor(held, 10, 20) == rate_factor(held, 20, 20) == rate_factor(keys, 10**6, -1) == 1.0


@given(st.sampled_from([0.1, 0.25, 1 / 3, 1.0, 2.5, 7.0]), st.integers(1, 16), st.integers(0, 50))
def test_the_ratio_is_exact_whatever_the_number_of_environments(ratio, n_envs, start_step):
    pace, step, done = RatioUpdates(ratio, start_step), 0, 0
    for _ in range(200):
        step += n_envs
        done += pace.due(step)
        assert done == math.floor(ratio * max(0, step - start_step) + 1e-9)
    if done:
        assert pace.achieved(step, done) == pytest.approx(ratio, abs=1.0 / (step - start_step))


def test_what_could_not_be_done_is_owed_and_what_was_deferred_is_not():
    pace = RatioUpdates(0.29, 0)
    assert pace.due(100) == 29 and 0.29 * 100 < 29.0, "rounding loses no update"
    pace = RatioUpdates(1.0, 0)
    assert pace.due(3) == 3
    pace.carry_over(2)
    assert pace.due(4) == 3
    pace.defer(5)
    assert [pace.due(6), pace.due(8)] == [1, 2] and math.isnan(pace.achieved(5, 0))


def test_due_once_per_crossing():
    every = Every(10)
    assert [every.due(count) for count in (0, 9, 10, 11, 35, 36, 40)] == [
        False, False, True, False, True, False, True,
    ]  # fmt: skip
    assert not Every(-1).due(10**9)


def test_of_a_young_run_more_is_seen():
    """Rows of 1,000 steps begin with eighths, and evaluations of 2,000 with halves."""
    for interval, shortest, early, last in (
        (1000, 100, [*range(125, 1000, 125), *range(1000, 2000, 250), *range(2000, 4000, 500)], 4000),
        (2000, 1000, range(1000, 8000, 1000), 8000),
        (500, 100, [*range(125, 1000, 125), *range(1000, 2000, 250)], 2000),
        (199, 100, (), 0),
    ):
        every, whole = Every(interval, shortest=shortest), range(last, 20_000, interval)
        due = [step for step in range(1, 20_000) if every.due(step)]
        assert due == [*early, *(step for step in whole if step)]
    assert not Every(-1, shortest=100).due(10**9)


@given(st.integers(1, 9_999), st.integers(1, 64))
def test_what_is_due_of_a_resumed_run_follows_from_its_steps(stop, n_envs):
    straight = Every(1000, shortest=100)
    due = [step for step in range(0, 20_000, n_envs) if straight.due(step)]
    resumed = Every(1000, max(step for step in range(0, 20_000, n_envs) if step <= stop), shortest=100)
    assert [step for step in range(0, 20_000, n_envs) if step > stop and resumed.due(step)] == [
        step for step in due if step > stop
    ]


@settings(max_examples=50)
@given(
    st.sampled_from([0.1, 1 / 3, 1.0, 2.5]),
    st.integers(0, 50),
    st.lists(
        st.tuples(st.integers(1, 16), st.sampled_from(["do", "defer", "carry", "stop"])),
        min_size=1,
        max_size=60,
    ),
)
def test_a_resumed_pace_owes_what_would_have_been_owed(ratio, start_step, events):
    straight, stopped, step = RatioUpdates(ratio, start_step), RatioUpdates(ratio, start_step), 0
    for steps, event in events:
        step += steps
        owed = straight.due(step)
        assert stopped.due(step) == owed
        for pace in (straight, stopped):
            if event == "defer" and owed:
                pace.defer(step)
            if event == "carry" and owed:
                pace.carry_over(owed // 2 + 1)
        assert math.isnan(straight.achieved(step, 7)) == math.isnan(stopped.achieved(step, 7))
        if event == "stop":
            state = json.loads(json.dumps(stopped.state(), allow_nan=False))
            stopped = RatioUpdates(ratio, start_step)
            stopped.load_state(state)
            assert stopped.state() == straight.state()


def test_another_ratio_counts_from_the_resume_on():
    before = RatioUpdates(1.0, 100)
    assert before.due(300) == 200
    before.carry_over(3)
    resumed = RatioUpdates(0.25, 100)
    resumed.load_state(before.state())
    assert [resumed.due(300), resumed.due(304), resumed.due(308)] == [3, 1, 1]
    assert resumed.achieved(308, 205) == 205 / 208, "since learning began"
    again = RatioUpdates(2.0, 100)
    again.load_state(resumed.state())
    assert again.due(309) == 2


def test_what_waits_for_a_fresh_pace_is_in_the_replay():
    pace = FifoUpdates(lambda: 25, 10, 100)
    pace.load_state(json.loads(json.dumps(pace.state())))
    assert [pace.due(99), pace.due(100)] == [0, 2]
