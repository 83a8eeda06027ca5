"""Rewards are divided by the spread of the returns, however many transitions come at once."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.data import Segment
from algorithm.nn.return_scale import FirstReturnScale, ReturnScale
from tests.lib.batches import small_sac


def transitions(rewards, *, stream=0, start=0, terminated=False, truncated=False):
    n = len(rewards)
    ends = np.zeros(n - 1, bool)
    nothing = np.zeros((n + 1, 0), np.float32)
    return Segment(
        stream=stream,
        start_step=start,
        obs={},
        action_mask=nothing.astype(bool),
        carry=nothing,
        action=nothing[:-1],
        z=nothing[:-1],
        behaviour_logp=nothing[:-1],
        reward=np.array(rewards, np.float32),
        terminated=np.append(ends, terminated),
        truncated=np.append(ends, truncated),
    ).steps()


@pytest.mark.parametrize(
    ("episodes", "factor"),
    [
        ([[1.0, 2.0], [3.0]], 1 / np.std([1, 2.5, 3])),  # γ ½: G = 1, 2.5 | 3; the largest / 5 is 0.6
        ([*[[0.0]] * 200, [-100.0]], 5 / 100),  # a rare large return is scaled to five
        ([[0.0, 0.0]], 1.0),
    ],
)
def test_numbers_by_hand(episodes, factor):
    scale = ReturnScale(0.5)
    for rewards in episodes:
        scale.observe(transitions(rewards, terminated=True))
    assert scale.factor == pytest.approx(factor)


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1.0, 7.0, 1e3, 1e6])
def test_one_factor_by_the_first_returns(unit):
    """G = ±8 spreads by 8, which is ordinary. ±8e-6 and ±8e6 become ±15. Later rewards change nothing."""
    scale = FirstReturnScale(0.5, 4)
    for reward in (8.0, -8.0, 8.0, -8.0, 1e5, -1e9):
        scale.observe(transitions([reward * unit], terminated=True))
    assert scale.factor * unit * 8 == pytest.approx(15 if unit < 0.05 or unit > 60 else 8 * unit)
    again = FirstReturnScale(0.5, 4)
    again.load_tensors(scale.tensors())
    assert again.factor == scale.factor and again.resolved


def test_the_first_return_that_is_not_0_is_waited_for():
    scale = FirstReturnScale(0.5, 2)
    scale.observe(transitions([0.0] * 99))
    assert not scale.resolved and scale.factor == 1
    scale.observe(transitions([5e6], start=99, terminated=True))  # the largest / 5: 1e6
    assert scale.resolved and scale.factor == pytest.approx(15e-6)
    assert "multiplied by 1.5e-05" in str(scale)


@pytest.mark.parametrize("broken", [-1e30, float("nan")])
def test_a_broken_reward_is_left_out(broken):
    scale, healthy = ReturnScale(0.5), ReturnScale(0.5)
    scale.observe(transitions([1.0, 2.0, broken]))
    scale.observe(transitions([broken, 3.0], start=3))
    healthy.observe(transitions([1.0, 2.0], terminated=True))
    healthy.observe(transitions([3.0]))
    assert scale.tensors()["statistics"].tolist() == healthy.tensors()["statistics"].tolist()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"terminated": True}, {"start": 2}, 8),
        ({"truncated": True}, {"start": 2}, 8),
        ({}, {"start": 0}, 8),
        ({}, {"start": 3}, 8),  # a step is missing
        ({}, {"start": 2, "stream": 1}, 8),
        ({}, {"start": 2}, 12),
    ],
)
def test_an_end_a_start_and_a_gap_begin_anew(first, second, expected):
    """Of the second portion the first return is its reward, 8, alone; 12 where the stream goes on."""
    scale = ReturnScale(0.5)
    scale.observe(transitions([0.0, 8.0], **first))
    scale.observe(transitions([8.0], **second))
    assert scale.largest == expected


@given(
    portions=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    unit=st.sampled_from([1.0, 1e4]),
    saved=st.integers(0, 5),
)
def test_any_portions_of_an_episode_give_the_same_also_from_a_saved_state(portions, unit, saved):
    """A unit of 10⁴ gives a factor 10⁴ times as small: scaled rewards are the same."""
    rewards = np.random.default_rng(saved).normal(size=sum(portions)).astype(np.float32)
    whole, parts, start = ReturnScale(0.9), ReturnScale(0.9), 0
    whole.observe(transitions(rewards, stream=2**40))
    for number, n in enumerate(portions):
        if number == saved:
            tensors, parts = parts.tensors(), ReturnScale(0.9)
            parts.load_tensors(tensors)
        portion = rewards[start : start + n] * np.float32(unit)
        parts.observe(transitions(portion, start=start, stream=2**40))
        start += n
    assert parts.factor * unit == pytest.approx(whole.factor, rel=1e-4)
    if unit == 1.0:
        assert all(torch.equal(value, parts.tensors()[name]) for name, value in whole.tensors().items())


def steps(*rewards, start=0):
    """The same as one step after another, as a learner gets them."""
    return transitions(rewards, start=start)


def test_statistics_go_back_and_episodes_go_on():
    """As the networks that were learned with them do; the open return is that of the step before."""
    sac = small_sac(reward_scaling=True)
    sac.observe(steps(1.0, 2.0))
    saved, factor, largest = sac.tensors(), sac.return_scale.factor, sac.return_scale.largest
    sac.observe(steps(1e6, start=2))
    assert sac.return_scale.factor < 1e-3 * factor
    sac.roll_back(saved)
    assert (sac.return_scale.factor, sac.return_scale.largest) == (factor, largest)
    sac.observe(steps(0.0, start=3))
    assert sac.return_scale.largest > 1e5, "γ times the return of the step before"


def test_of_a_stream_that_is_closed_nothing_is_kept():
    scale = ReturnScale(0.5)
    scale.observe(transitions([8.0], stream=7))
    scale.close(7)
    scale.close(5)  # that never was
    assert not len(scale.tensors()["stream"])
    scale.observe(transitions([8.0], stream=7, start=1))
    assert scale.largest == 8
