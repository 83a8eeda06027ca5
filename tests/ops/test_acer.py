"""ACER's returns, gradients and trust region against loops, enumeration, autograd and a solver."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.distributions import Categorical, Normal, kl_divergence

from algorithm.ops import on_policy as acer
from tests.lib.oracles import retrace_returns


def test_retrace_is_its_recursion(rng):
    shape = (40, 6)
    first, last = rng.integers(0, 3, 40), rng.integers(3, 7, 40)
    valid = (np.arange(6) >= first[:, None]) & (np.arange(6) < last[:, None])
    reward, q = rng.normal(size=shape), rng.normal(size=shape)
    value, trace = rng.normal(size=(40, 7)), rng.uniform(size=shape)
    terminated = np.zeros(shape, bool)
    terminated[::2, -1] = valid[::2, -1]
    columns = (reward, terminated, valid, value, q, trace)
    found = acer.retrace(*map(torch.from_numpy, columns), gamma=0.9)
    expected = retrace_returns(*columns, gamma=0.9)
    np.testing.assert_allclose(found.numpy()[valid], expected[valid], rtol=1e-12)


def test_gradients_by_the_parameters_are_those_of_autograd(rng):
    """Compare the objective at a leaf φ, and the KL divergence from the average policy."""

    def drawn(*size):
        return torch.tensor(rng.normal(size=size))

    probs = drawn(5, 4).softmax(-1)
    average, acted = drawn(5, 4).softmax(-1), drawn(5, 4).softmax(-1)
    taken = torch.nn.functional.one_hot(torch.tensor(rng.integers(4, size=5)), 4).double()
    gain, gains, limit = drawn(5), drawn(5, 4), 1.2
    ratio, leaf = probs / acted, probs.clone().requires_grad_()
    plain = (ratio * taken).sum(-1).clamp(max=limit) * (leaf.log() * taken).sum(-1) * gain
    rest = ((1 - limit / ratio).clamp(min=0) * probs * leaf.log() * gains).sum(-1)
    (expected,) = torch.autograd.grad((plain + rest).sum(), leaf)
    weighted = (ratio * taken).sum(-1).clamp(max=limit) * gain
    found = acer.choice_gradient(probs, ratio, taken, weighted, gains, ratio_max=limit)
    torch.testing.assert_close(found, expected)
    own = probs.clone().requires_grad_()
    (expected,) = torch.autograd.grad((average * (average.log() - own.log())).sum(), own)
    torch.testing.assert_close(acer.choice_divergence(average, probs), expected)
    assert kl_divergence(Categorical(average), Categorical(probs)).shape == (5,)

    mean, log_std, z = (drawn(5, 2).requires_grad_() for _ in range(3))
    other, width = drawn(5, 2), drawn(5, 2)
    part = Normal(mean, log_std.exp())
    expected = torch.cat(torch.autograd.grad(part.log_prob(z.detach()).sum(), (mean, log_std)), -1)
    torch.testing.assert_close(acer.normal_gradient(mean.detach(), log_std.detach(), z.detach()), expected)
    divergence = kl_divergence(Normal(other, width.exp()), Normal(mean, log_std.exp())).sum()
    expected = torch.cat(torch.autograd.grad(divergence, (mean, log_std)), -1)
    found = acer.normal_divergence((other, width), mean.detach(), log_std.detach())
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("cases", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_trust_region_solves_its_quadratic_problem(rng, cases):
    g, k = rng.normal(size=(cases, 4)), rng.normal(size=(cases, 4))
    limits = rng.uniform(0, 2, cases)
    some = 0
    for i in range(cases):
        z, shortened = acer.trust_region(torch.from_numpy(g[i]), torch.from_numpy(k[i]), limits[i])
        bound = {"type": "ineq", "fun": lambda x, i=i: limits[i] - k[i] @ x, "jac": lambda x, i=i: -k[i]}
        best = minimize(
            lambda x, i=i: 0.5 * ((x - g[i]) ** 2).sum(),
            np.zeros(4),
            jac=lambda x, i=i: x - g[i],
            constraints=[bound],
            method="SLSQP",
            options={"ftol": 1e-12},
        )
        np.testing.assert_allclose(z.numpy(), best.x, atol=1e-5)
        assert k[i] @ z.numpy() <= limits[i] + 1e-9
        assert bool(shortened) == (k[i] @ g[i] > limits[i])
        some += bool(shortened)
    assert 0 < some < cases


def test_nothing_diverges_without_probability():
    """Choices that are not allowed have probability 0 in both policies, and no part in the step."""
    probs, average = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.2, 0.8, 0.0])
    assert acer.choice_divergence(average, probs).tolist() == pytest.approx([-0.4, -1.6, 0.0])
