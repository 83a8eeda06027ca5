"""Rewards are divided by the spread of the returns, however many transitions come at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.core.data import Segment
from algorithm.nn.return_scale import NoReturnScale, ReturnScale
from tests.batches import small_sac


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
    )


def test_numbers_by_hand():
    """γ ½, rewards 1, 2 | 3: G = 1, 2.5, 3; mean 13/6, σ 0.8498; max/5 is 0.6."""
    scale = ReturnScale(0.5)
    scale.observe(transitions([1.0, 2.0], terminated=True))
    scale.observe(transitions([3.0], terminated=True))
    assert scale.factor == pytest.approx(1 / np.std([1, 2.5, 3]))
    assert float(np.std([1, 2.5, 3])) == pytest.approx(0.8498, abs=1e-4)


def test_a_rare_large_return_is_scaled_to_five():
    scale = ReturnScale(0.9)
    for _ in range(200):
        scale.observe(transitions([0.0], terminated=True))
    scale.observe(transitions([-100.0], terminated=True))
    assert scale.factor == pytest.approx(5 / 100)


def test_without_any_reward_the_factor_is_one():
    scale = ReturnScale(0.9)
    scale.observe(transitions([0.0, 0.0]))
    assert scale.factor == 1.0


@pytest.mark.parametrize("broken", [1e30, -1e30, float("inf"), float("nan")])
def test_a_broken_reward_is_left_out(broken):
    scale, healthy = ReturnScale(0.5), ReturnScale(0.5)
    scale.observe(transitions([1.0, 2.0, broken]))
    scale.observe(transitions([broken, 3.0], start=3))
    healthy.observe(transitions([1.0, 2.0], terminated=True))
    healthy.observe(transitions([3.0]))
    assert scale.tensors()["statistics"].tolist() == healthy.tensors()["statistics"].tolist()


def test_an_end_a_start_and_a_gap_begin_anew():
    """Of each second portion the first return is its reward, 8, alone; 12 where the stream goes on."""
    for first, second, expected in [
        ({"terminated": True}, {"start": 2}, 8),
        ({"truncated": True}, {"start": 2}, 8),
        ({}, {"start": 0}, 8),
        ({}, {"start": 3}, 8),  # a step is missing
        ({}, {"start": 2, "stream": 1}, 8),
        ({}, {"start": 2}, 12),
    ]:
        scale = ReturnScale(0.5)
        scale.observe(transitions([0.0, 8.0], **first))
        scale.observe(transitions([8.0], **second))
        assert scale.largest == expected, (first, second)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.sampled_from([1.0, 1e4]), st.integers(0, 99))
def test_any_portions_of_an_episode_give_the_same(portions, unit, seed):
    """A unit of 10⁴ gives a factor 10⁴ times as small: scaled rewards are the same."""
    rewards = np.random.default_rng(seed).normal(size=sum(portions)).astype(np.float32)
    whole, parts = ReturnScale(0.9), ReturnScale(0.9)
    whole.observe(transitions(rewards))
    start = 0
    for n in portions:
        parts.observe(transitions(rewards[start : start + n] * np.float32(unit), start=start))
        start += n
    assert parts.factor * unit == pytest.approx(whole.factor, rel=1e-4)
    if unit == 1.0:
        assert torch.equal(parts.tensors()["statistics"], whole.tensors()["statistics"]), "bit for bit"
    assert parts.count == whole.count == len(rewards)


def test_a_saved_one_goes_on_bit_for_bit():
    """In the middle of the episodes of two streams."""
    one, other = ReturnScale(0.9), ReturnScale(0.9)
    for stream in (7, 2**40):
        one.observe(transitions([1.0, -2.0, 0.5], stream=stream))
    other.load_tensors(one.tensors())
    for scale in (one, other):
        scale.observe(transitions([3.0], stream=2**40, start=3))
    assert other.factor == one.factor
    for name, value in one.tensors().items():
        assert torch.equal(value, other.tensors()[name])


def test_statistics_go_back_and_episodes_go_on():
    """As the networks that were learned with them do; the open return is that of the step before."""
    scale = ReturnScale(0.5)
    scale.observe(transitions([1.0, 2.0]))
    saved, factor = scale.tensors(), scale.factor
    scale.observe(transitions([4.0], start=2))
    scale.roll_back(saved)
    assert scale.factor == factor and scale.count == 2
    scale.observe(transitions([8.0], start=3))
    assert scale.largest == 8 + 0.5 * (4 + 0.5 * 2.5)


def test_a_learner_takes_it_back_together_with_its_networks():
    sac = small_sac(reward_scaling=True)
    sac.observe(transitions([2.0, 3.0]))
    saved, factor = sac.tensors(), sac.return_scale.factor
    sac.observe(transitions([1e6], start=2))
    assert sac.return_scale.factor < 1e-3 * factor
    sac.roll_back(saved)
    assert sac.return_scale.factor == factor


def test_of_a_stream_that_is_closed_nothing_is_kept():
    scale = ReturnScale(0.5)
    for stream in range(100):
        scale.observe(transitions([8.0], stream=stream))
        scale.close(stream)
    scale.close(5)  # more than once
    assert not len(scale.tensors()["stream"])
    scale.observe(transitions([8.0], stream=7, start=1))
    assert scale.largest == 8


def test_rewards_as_they_are():
    scale = NoReturnScale()
    scale.observe(transitions([5.0]))
    assert scale.factor == 1.0
    assert not scale.tensors()
