"""Densities and losses of SAC: hand numbers, numerical integration, identities."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.ops.densities import log_tanh_jacobian, tanh_normal_logp
from algorithm.ops.sac import (
    clip_binds,
    clipped_critic_loss,
    critic_loss,
    policy_loss,
    sequence_priority,
    temperature_loss,
)
from algorithm.ops.shapes import masked_mean, window_mean
from tests.lib.oracles import window_mean as plain_window_mean

ALL, FIRST = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[True, False]])


def test_jacobian_where_the_naive_formula_works_and_where_it_does_not():
    z = torch.tensor([0.0, 1.0, -1.0])
    torch.testing.assert_close(log_tanh_jacobian(z), (1 - z.tanh().square()).log())
    # far out log(1 − tanh²z) → log 4 − 2|z|, where float32 tanh is already 1
    far = log_tanh_jacobian(torch.tensor([30.0, -30.0]))
    torch.testing.assert_close(far, torch.full((2,), math.log(4.0) - 60.0))


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-4.0, 0.5), (6.0, -0.7)])
def test_density_of_u_integrates_to_one(mean, log_std):
    """∫ p(u) du = ∫ p(u(z)) |du/dz| dz on a grid that reaches |z| = 7 and beyond; dimensions are summed."""
    z = torch.linspace(-14.0, 14.0, 200_001, dtype=torch.float64).unsqueeze(-1)
    p = tanh_normal_logp(z, torch.full_like(z, mean), torch.full_like(z, log_std)).exp()
    du = log_tanh_jacobian(z).squeeze(-1).exp()
    assert torch.trapezoid(p * du, z.squeeze(-1)).item() == pytest.approx(1.0, abs=1e-6)
    zero = torch.zeros(3, 2)  # −½log 2π each, Jacobian 0
    torch.testing.assert_close(tanh_normal_logp(zero, zero, zero), torch.full((3,), -math.log(2 * math.pi)))


@pytest.mark.parametrize(
    ("weight", "valid", "expected"), [(1.0, ALL, 3.5), (0.5, ALL, 1.75), (1.0, FIRST, 5.0)]
)
def test_critic_loss_by_hand(weight, valid, expected):
    """Errors (1, 2) and (3, 0) of two critics: ½·(1+4)/2 + ½·(9+0)/2 = 3.5; of the first step ½·1 + ½·9."""
    q = torch.tensor([[[1.0, 2.0]], [[3.0, 0.0]]])
    assert critic_loss(q, torch.zeros(1, 2), torch.tensor([weight]), valid).item() == expected


@pytest.mark.parametrize(
    ("q", "y", "loss", "binds"),
    [
        (1.0, 2.0, 0.5 * 1.8**2, True),  # the clipped prediction, 0.2, is further off
        (1.0, -2.0, 0.5 * 3.0**2, False),  # it has to come back
        (0.3, 5.0, 0.5 * 4.8**2, True),  # further up than 0.2, and should go on
        (0.3, 0.24, 0.5 * 0.06**2, False),  # 0.2 is nearer
        (-0.3, -5.0, 0.5 * 4.8**2, True),
        (-0.3, 5.0, 0.5 * 5.3**2, False),
        (0.1, 5.0, 0.5 * 4.9**2, False),  # not so far yet
    ],
)
def test_the_clipped_loss_is_the_worse_of_both_and_binds_where_it_takes_the_gradient(q, y, loss, binds):
    """Q' = 0, ε = 0.2."""
    q, y = torch.full((1, 1, 1), q, requires_grad=True), torch.full((1, 1), y)
    q_target, valid = torch.zeros(1, 1, 1), torch.ones(1, 1, dtype=torch.bool)
    found = clipped_critic_loss(q, y, q_target, torch.ones(1), valid, epsilon=0.2)
    found.backward()
    assert found.item() == pytest.approx(loss)
    assert (q.grad.item() == 0.0) == clip_binds(q, y, q_target, epsilon=0.2).item() == binds


def test_policy_loss_by_hand():
    # α = ½: ½·2 − 3 = −2 and ½·4 − 1 = 1, mean −½; with only the first valid −2
    logp, value, alpha = torch.tensor([2.0, 4.0]), torch.tensor([3.0, 1.0]), torch.tensor(0.5)
    assert policy_loss(logp, value, alpha, torch.tensor([0.5, 0.5])).item() == -0.5
    assert policy_loss(logp, value, alpha, torch.tensor([1.0, 0.0])).item() == -2.0


def test_temperature_falls_while_entropy_is_above_its_target():
    log_alpha = torch.tensor(0.0, requires_grad=True)
    temperature_loss(log_alpha, torch.tensor([1.0, 3.0]), -1.0, torch.tensor([0.5, 0.5])).backward()
    assert log_alpha.grad.item() == 3.0  # mean entropy 2 minus target −1: gradient descent lowers log α


@given(st.integers(0, 6), st.floats(0.0, 1.0))
def test_the_mean_over_windows_is_that_of_a_loop(size, share):
    x, valid = torch.randn(size, 5), torch.rand(size, 5) < share
    torch.testing.assert_close(window_mean(x, valid), torch.as_tensor(plain_window_mean(x, valid)).float())
    one = valid[:, :1]
    assert torch.equal(window_mean(x[:, :1], one), masked_mean(x[:, 0], one[:, 0])), "T = 1: the plain mean"


def test_priority_by_hand():
    # critics (1, 3) and (3, 5): mean |δ| = (2, 4): 0.9·4 + 0.1·3 = 3.9; without the second position 2
    td = torch.tensor([[[1.0, -3.0]], [[-3.0, 5.0]]])
    assert sequence_priority(td, ALL).item() == pytest.approx(3.9)
    assert sequence_priority(td, FIRST).item() == pytest.approx(2.0)


def test_a_wide_clip_is_none():
    """Neither by rounding."""
    q, q_target = torch.rand(2, 2, 500, 1) * 100
    y, weight, valid = torch.rand(500, 1) * 100, torch.rand(500), torch.ones(500, 1, dtype=torch.bool)
    assert not clip_binds(q, y, q_target, epsilon=100.0).any()
    wide = clipped_critic_loss(q, y, q_target, weight, valid, epsilon=100.0)
    torch.testing.assert_close(wide, critic_loss(q, y, weight, valid))
