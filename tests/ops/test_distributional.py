"""Distributional losses against hand numbers and plain formulas."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal
from torch.nn.functional import huber_loss

from algorithm.ops.distributional import (
    cross_entropy,
    histogram,
    midpoints,
    quantile_huber,
    truncated,
)


def test_a_truncated_target_by_hand():
    """z = [1, 3], [2, 10], one dropped of each: [1, 2] stay; r 1, γ ½, α log π 0.4: y 1.55."""
    z = torch.tensor([[1.0, 3.0], [2.0, 10.0]]).unsqueeze(-1)
    kept = truncated(z, 1)
    assert kept.flatten().tolist() == [1.0, 2.0] and truncated(z, 0).flatten().tolist() == [1, 2, 3, 10]
    y = 1.0 + 0.5 * (kept.mean(0) - 0.4)
    atoms = y + 0.5 * (kept - kept.mean(0))
    torch.testing.assert_close(atoms.flatten(), torch.tensor([1.3, 1.8]))
    theta = torch.tensor([1.0, 2.0]).view(1, 2, 1).requires_grad_()
    loss = quantile_huber(theta, atoms, midpoints(2), kappa=1.0)
    loss.sum().backward()
    torch.testing.assert_close(loss, torch.tensor([[0.039375]]))
    torch.testing.assert_close(theta.grad.flatten(), torch.tensor([-0.06875, 0.05625]))


@given(
    critics=st.integers(1, 3),
    quantiles=st.integers(1, 6),
    atoms=st.integers(1, 7),
    kappa=st.sampled_from([0.1, 1.0, 3.0]),
)
def test_quantile_huber_is_the_mean_over_all_pairs(critics, quantiles, atoms, kappa):
    """|τ − 1{δ<0}| H(δ)/κ; its gradient is written by hand."""
    theta = torch.randn(critics, quantiles, 2, dtype=torch.float64, requires_grad=True)
    z, level = torch.randn(atoms, 2, dtype=torch.float64), midpoints(quantiles).double()
    loss = quantile_huber(theta, z, level, kappa=kappa)
    delta = z - theta.unsqueeze(2)  # [E, K, J, P]
    huber = huber_loss(delta, torch.zeros_like(delta), reduction="none", delta=kappa)
    plain = ((level.view(-1, 1, 1) - (delta < 0).double()).abs() * huber / kappa).mean((1, 2))
    torch.testing.assert_close(loss, plain)
    weight = torch.rand_like(loss)
    found, expected = (torch.autograd.grad((one * weight).sum(), theta) for one in (loss, plain))
    torch.testing.assert_close(found, expected)


def test_a_histogram_by_hand():
    edges, centres = torch.linspace(-1.25, 1.25, 6), torch.linspace(-1, 1, 5)
    p = histogram(torch.tensor([0.3]), edges, sigma=0.375).flatten()
    expected = torch.tensor([0.00255, 0.06907, 0.37787, 0.44046, 0.11004])
    torch.testing.assert_close(p, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close((p * centres).sum(), torch.tensor(0.2932), atol=1e-4, rtol=0)
    logits = torch.zeros(1, 5, 1, requires_grad=True)
    cross_entropy(logits.log_softmax(1), p[:, None]).sum().backward()
    torch.testing.assert_close(logits.grad.flatten(), 0.2 - p, atol=1e-6, rtol=0)


@given(y=st.floats(-2, 2), bins=st.integers(2, 9), sigma=st.floats(0.1, 2))
def test_a_histogram_is_the_mass_of_a_normal_within_the_edges(y, bins, sigma):
    edges, y = torch.linspace(-2.5, 2.5, bins + 1, dtype=torch.float64), torch.tensor([y]).double()
    mass = Normal(y, sigma).cdf(edges).diff()
    torch.testing.assert_close(histogram(y, edges, sigma=sigma).flatten(), mass / mass.sum())
