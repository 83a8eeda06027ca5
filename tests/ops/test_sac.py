"""Densities and losses of SAC: hand numbers, numerical integration, identities."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.ops.densities import log_tanh_jacobian, tanh_normal_logp
from algorithm.ops.priority import sequence_priority
from algorithm.ops.sac import (
    clip_binds,
    clipped_critic_loss,
    critic_loss,
    policy_loss,
    temperature_loss,
)
from algorithm.ops.shapes import masked_mean, window_mean
from tests.oracles import window_mean as plain_window_mean

ALL = torch.ones(1, 2, dtype=torch.bool)


def test_jacobian_where_the_naive_formula_works_and_where_it_does_not():
    z = torch.tensor([0.0, 1.0, -1.0])
    torch.testing.assert_close(log_tanh_jacobian(z), (1 - z.tanh().square()).log())
    # far out log(1 − tanh²z) → log 4 − 2|z|, where float32 tanh is already 1
    far = log_tanh_jacobian(torch.tensor([30.0, -30.0]))
    torch.testing.assert_close(far, torch.full((2,), math.log(4.0) - 60.0))


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-4.0, 0.5), (6.0, -0.7)])
def test_density_of_u_integrates_to_one(mean, log_std):
    """∫ p(u) du = ∫ p(u(z)) |du/dz| dz on a grid that reaches |z| = 7 and beyond."""
    z = torch.linspace(-14.0, 14.0, 200_001, dtype=torch.float64).unsqueeze(-1)
    p = tanh_normal_logp(z, torch.full_like(z, mean), torch.full_like(z, log_std)).exp()
    du = log_tanh_jacobian(z).squeeze(-1).exp()
    assert torch.trapezoid(p * du, z.squeeze(-1)).item() == pytest.approx(1.0, abs=1e-6)


def test_logp_sums_over_dimensions():
    # at z = 0 and mean 0, std 1: −½log 2π each, Jacobian 0
    zero = torch.zeros(3, 2)
    expected = torch.full((3,), -math.log(2 * math.pi))
    torch.testing.assert_close(tanh_normal_logp(zero, zero, zero), expected)


def test_critic_loss_by_hand():
    # two critics, two positions: errors (1, 2) and (3, 0); ½·mean_t of squares: ½·(1+4)/2 + ½·(9+0)/2 = 3.5
    q = torch.tensor([[[1.0, 2.0]], [[3.0, 0.0]]])
    y = torch.zeros(1, 2)
    assert critic_loss(q, y, torch.ones(1), ALL).item() == 3.5
    assert critic_loss(q, y, torch.tensor([0.5]), ALL).item() == 1.75
    # the second position is padding: ½·1 + ½·9 = 5
    assert critic_loss(q, y, torch.ones(1), torch.tensor([[True, False]])).item() == 5.0


def test_clipped_loss_takes_the_worse_of_both_predictions():
    # Q = 1, Q' = 0, ε = 0.2: the clipped prediction is 0.2
    q, q_target = torch.ones(1, 1, 1), torch.zeros(1, 1, 1)
    valid, weight = torch.ones(1, 1, dtype=torch.bool), torch.ones(1)
    # y = 2: the clipped one is further off: ½·1.8² = 1.62;   y = −2: the plain one is: ½·3² = 4.5
    worse = clipped_critic_loss(q, torch.full((1, 1), 2.0), q_target, weight, valid, epsilon=0.2)
    assert worse.item() == pytest.approx(1.62)
    plain = clipped_critic_loss(q, torch.full((1, 1), -2.0), q_target, weight, valid, epsilon=0.2)
    assert plain.item() == pytest.approx(4.5)


def test_clipped_loss_with_a_wide_clip_is_the_plain_one():
    q, q_target, y = torch.randn(3, 4, 2), torch.randn(3, 4, 2), torch.randn(4, 2)
    weight, valid = torch.rand(4), torch.ones(4, 2, dtype=torch.bool)
    wide = clipped_critic_loss(q, y, q_target, weight, valid, epsilon=100.0)
    torch.testing.assert_close(wide, critic_loss(q, y, weight, valid))


@pytest.mark.parametrize(
    ("q", "y", "binds"),
    [
        (0.3, 5.0, True),  # further up than 0.2, and should go on
        (0.3, 0.24, False),  # 0.2 is nearer
        (0.3, -5.0, False),  # it has to come back
        (-0.3, -5.0, True),
        (-0.3, 5.0, False),
        (0.1, 5.0, False),  # not so far yet
    ],
)
def test_the_clip_binds_where_it_takes_the_gradient(q, y, binds):
    q, y = torch.full((1, 1, 1), q, requires_grad=True), torch.full((1, 1), y)
    q_target = torch.zeros(1, 1, 1)
    valid, weight = torch.ones(1, 1, dtype=torch.bool), torch.ones(1)
    clipped_critic_loss(q, y, q_target, weight, valid, epsilon=0.2).backward()
    assert (q.grad.item() == 0.0) == binds
    assert clip_binds(q, y, q_target, epsilon=0.2).item() == binds


def test_rounding_is_no_clip():
    q, q_target = torch.rand(2, 500, 1) * 100, torch.rand(2, 500, 1) * 100
    assert not clip_binds(q, torch.rand(500, 1) * 100, q_target, epsilon=100.0).any()


def test_policy_loss_by_hand():
    # α = ½: ½·2 − 3 = −2 and ½·4 − 1 = 1, mean −½; with only the first valid −2
    logp, value, alpha = torch.tensor([2.0, 4.0]), torch.tensor([3.0, 1.0]), torch.tensor(0.5)
    assert policy_loss(logp, value, alpha, torch.tensor([0.5, 0.5])).item() == -0.5
    assert policy_loss(logp, value, alpha, torch.tensor([1.0, 0.0])).item() == -2.0


def test_temperature_falls_while_entropy_is_above_its_target():
    log_alpha = torch.tensor(0.0, requires_grad=True)
    temperature_loss(log_alpha, torch.tensor([1.0, 3.0]), -1.0, torch.tensor([0.5, 0.5])).backward()
    assert log_alpha.grad.item() == 3.0  # mean entropy 2 minus target −1: gradient descent lowers log α


@given(st.integers(0, 2**32 - 1))
def test_the_mean_over_windows_is_that_of_a_loop(seed):
    g = torch.Generator().manual_seed(seed)
    x, valid = torch.randn(6, 5, generator=g), torch.rand(6, 5, generator=g) < 0.5
    torch.testing.assert_close(window_mean(x, valid), torch.as_tensor(plain_window_mean(x, valid)))
    one = valid[:, :1]
    assert torch.equal(window_mean(x[:, :1], one), masked_mean(x[:, 0], one[:, 0])), "T = 1: the plain mean"


def test_the_mean_over_no_windows_is_zero():
    assert window_mean(torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool)).item() == 0.0


def test_masked_mean_of_nothing_is_zero():
    assert masked_mean(torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool)).tolist() == [0.0, 0.0]


def test_priority_by_hand():
    # critics (1, 3) and (3, 5): mean |δ| = (2, 4): 0.9·4 + 0.1·3 = 3.9; without the second position 2
    td = torch.tensor([[[1.0, -3.0]], [[-3.0, 5.0]]])
    assert sequence_priority(td, ALL).item() == pytest.approx(3.9)
    assert sequence_priority(td, torch.tensor([[True, False]])).item() == pytest.approx(2.0)
    assert sequence_priority(td[..., :1], ALL[:, :1]).item() == pytest.approx(2.0)


def test_shapes_are_checked_by_name():
    with pytest.raises(ValueError, match="critic_loss: weight must have shape"):
        critic_loss(
            torch.zeros(2, 4, 1), torch.zeros(4, 1), torch.zeros(3), torch.ones(4, 1, dtype=torch.bool)
        )
