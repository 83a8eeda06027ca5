"""Distributional losses against hand numbers and plain loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.ops.distributional import (
    histogram,
    histogram_loss,
    midpoints,
    quantile_huber,
    truncated,
)
from algorithm.ops.returns import last_of_n, n_step_discount, soft_n_step
from tests import oracles


def test_midpoints_by_hand():
    assert midpoints(2).tolist() == [0.25, 0.75]


def test_a_truncated_target_by_hand():
    """z = [1, 3], [2, 10], one dropped of each: [1, 2] stay; r 1, γ ½, α log π 0.4: y 1.55."""
    z = torch.tensor([[1.0, 3.0], [2.0, 10.0]]).unsqueeze(-1)
    kept = truncated(z, 1)
    assert kept.flatten().tolist() == [1.0, 2.0]
    value = kept.mean(0)
    y = 1.0 + 0.5 * (value - 0.4)
    atoms = y + 0.5 * (kept - value)
    torch.testing.assert_close(y, torch.tensor([1.55]))
    torch.testing.assert_close(atoms.flatten(), torch.tensor([1.3, 1.8]))
    theta = torch.tensor([1.0, 2.0]).view(1, 2, 1).requires_grad_()
    loss = quantile_huber(theta, atoms, midpoints(2), kappa=1.0)
    loss.sum().backward()
    torch.testing.assert_close(loss, torch.tensor([[0.039375]]))
    torch.testing.assert_close(theta.grad.flatten(), torch.tensor([-0.06875, 0.05625]))


def test_nothing_dropped_is_the_mean_of_all_atoms():
    z = torch.randn(3, 5, 7)
    torch.testing.assert_close(truncated(z, 0).mean(0), z.mean((0, 1)))
    assert torch.equal(truncated(z, 2), truncated(z[[2, 0, 1]], 2))


def test_one_quantile_is_huber_regression():
    theta, atoms = torch.randn(2, 1, 6), torch.randn(1, 6)
    loss = quantile_huber(theta, atoms, midpoints(1), kappa=0.7)
    huber = torch.nn.functional.huber_loss(theta[:, 0], atoms.expand(2, 6), reduction="none", delta=0.7)
    torch.testing.assert_close(loss, 0.5 * huber / 0.7)


@given(
    critics=st.integers(1, 3),
    quantiles=st.integers(1, 6),
    atoms=st.integers(1, 7),
    kappa=st.sampled_from([0.1, 1.0, 3.0]),
    seed=st.integers(0, 10**6),
)
def test_quantile_huber_is_the_loop_over_pairs(critics, quantiles, atoms, kappa, seed):
    g = torch.Generator().manual_seed(seed)
    theta = torch.randn(critics, quantiles, 2, generator=g, dtype=torch.float64).requires_grad_()
    z = torch.randn(atoms, 2, generator=g, dtype=torch.float64)
    level = (torch.arange(quantiles, dtype=torch.float64) + 0.5) / quantiles
    loss = quantile_huber(theta, z, level, kappa=kappa)
    for e in range(critics):
        for p in range(2):
            slow = oracles.quantile_loss(theta[e, :, p].tolist(), z[:, p].tolist(), kappa)
            assert abs(float(loss[e, p]) - slow) < 1e-9
    assert torch.autograd.gradcheck(lambda x: quantile_huber(x, z, level, kappa=kappa), (theta,), atol=1e-4)


def test_a_histogram_by_hand():
    edges = torch.linspace(-1.25, 1.25, 6)
    p = histogram(torch.tensor([0.3]), edges, sigma=0.375).flatten()
    expected = torch.tensor([0.00255, 0.06907, 0.37787, 0.44046, 0.11004])
    torch.testing.assert_close(p, expected, atol=1e-5, rtol=0)
    centres = torch.linspace(-1, 1, 5)
    torch.testing.assert_close((p * centres).sum(), torch.tensor(0.2932), atol=1e-4, rtol=0)
    logits = torch.zeros(1, 5, 1, requires_grad=True)
    histogram_loss(logits.log_softmax(1), torch.tensor([0.3]), edges, sigma=0.375).sum().backward()
    torch.testing.assert_close(logits.grad.flatten(), 0.2 - p, atol=1e-6, rtol=0)


def test_the_mean_of_a_fine_histogram_is_its_target():
    centres = torch.linspace(-5, 5, 101, dtype=torch.float64)
    edges = torch.linspace(-5.05, 5.05, 102, dtype=torch.float64)
    y = torch.linspace(-4, 4, 33, dtype=torch.float64)
    mean = (histogram(y, edges, sigma=0.075) * centres[:, None]).sum(0)
    torch.testing.assert_close(mean, y, atol=4e-7, rtol=0)
    late = (histogram(torch.tensor([4.9], dtype=torch.float64), edges, sigma=0.075) * centres[:, None]).sum()
    assert abs(float(late) - 4.9 + 0.0047) < 5e-4


@given(y=st.floats(-2, 2), bins=st.integers(2, 9), sigma=st.floats(0.1, 2))
def test_histogram_is_the_loop_over_bins(y, bins, sigma):
    edges = torch.linspace(-2.5, 2.5, bins + 1, dtype=torch.float64)
    fast = histogram(torch.tensor([y], dtype=torch.float64), edges, sigma=sigma).flatten()
    slow = oracles.histogram(y, edges.tolist(), sigma)
    assert fast.tolist() == pytest.approx(slow, abs=1e-9)


@given(steps=st.integers(1, 6), n=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_rows_and_discounts_of_n_steps_are_the_loop(steps, n, seed):
    g = torch.Generator().manual_seed(seed)
    length = steps + n - 1
    first, last = sorted(torch.randint(0, length + 1, (2,), generator=g).tolist())
    valid = torch.zeros(1, length, dtype=torch.bool)
    valid[0, first:last] = True
    terminated = (torch.rand(1, length, generator=g) < 0.3) & valid
    rows, factor = last_of_n(valid, n), n_step_discount(terminated, valid, gamma=0.9, n=n)
    reward, value = torch.zeros(1, length), torch.randn(1, length, generator=g)
    y = soft_n_step(reward, terminated, valid, value, reward, gamma=0.9, n=n)
    found = oracles.last_and_discount(terminated[0].tolist(), valid[0].tolist(), 0.9, n)
    for t, (row, discount) in enumerate(found):
        if not valid[0, t]:
            continue  # no target is used there
        assert abs(float(factor[0, t]) - discount) < 1e-6
        if discount:
            assert int(rows[0, t]) == row
        assert abs(float(y[0, t]) - discount * float(value[0, row])) < 1e-5
