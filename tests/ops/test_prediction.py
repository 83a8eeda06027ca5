"""Losses of the world model: hand numbers, torch.distributions, and what must not matter."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

from algorithm.ops.extensions import (
    bounded_std,
    choice_error,
    gaussian_nll,
    squared_error,
    standard_normal_kl,
    transition_loss,
)


def test_standard_deviations_stay_within_their_bounds():
    raw = torch.tensor([-1e9, -100.0, 0.0, 100.0, 1e9], requires_grad=True)
    std = bounded_std(raw)
    torch.testing.assert_close(std, torch.tensor([0.1, 0.1, 0.55, 1.0, 1.0]))
    std.sum().backward()
    assert raw.grad.isfinite().all() and raw.grad[2] == pytest.approx(0.225)  # 0.9 · ½ · ½


def test_likelihood_and_divergence_are_those_of_torch():
    target, mean, raw = torch.randn(3, 4, 5, 6)
    std = bounded_std(raw)
    expected = -Normal(mean, std).log_prob(target).mean(-1)
    torch.testing.assert_close(gaussian_nll(target, mean, std), expected)
    expected = kl_divergence(Normal(mean, std), Normal(torch.zeros(()), torch.ones(()))).mean(-1)
    torch.testing.assert_close(standard_normal_kl(mean, std), expected)


@pytest.mark.parametrize(("valid", "kl", "expected"), [
    # σ = 1; errors 1, 3, 1 and μ = 1, −1, 1: ½, 4½, ½, and kl·½ each
    ([[True, True, False]], 0.8, 2.9),
    ([[True, False, False]], 0.0, 0.5),
    # every window counts alike: the means of (½, 4½) and of ½
    ([[True, True, False], [True, False, False]], 0.0, 1.5),
])  # fmt: skip
def test_transition_loss_by_hand(valid, kl, expected):
    valid = torch.tensor(valid)
    mean = torch.tensor([[1.0], [-1.0], [1.0]]).expand(len(valid), 3, 1)
    loss = transition_loss(torch.full_like(mean, 2.0), mean, torch.ones_like(mean), valid, kl=kl)
    assert loss.item() == pytest.approx(expected + 0.5 * math.log(2 * math.pi))


def test_squared_error_by_hand():
    # (1, 2, 2, 1) against 0: mean of (1, 4, 4, 1)
    x = torch.tensor([1.0, 2.0, 2.0, 1.0]).view(1, 1, 2, 2)
    assert squared_error(x, torch.zeros_like(x)).tolist() == [[2.5]]
    assert squared_error(torch.tensor([[3.0, 0.0]]), torch.zeros(1, 2)).tolist() == [[9.0, 0.0]]


def test_choices_are_each_among_their_own_categories():
    logits = torch.randn(2, 3, 5)
    chosen = torch.tensor([[[0, 2], [1, 0], [1, 1]], [[0, 0], [0, 1], [1, 2]]], dtype=torch.int8)
    parts = zip(logits.split([2, 3], -1), chosen.long().unbind(-1), strict=True)
    first, second = (-Categorical(logits=part).log_prob(one) for part, one in parts)
    torch.testing.assert_close(choice_error(logits, chosen, (2, 3)), (first + second) / 2)
    # equal logits: log of the number of categories
    assert choice_error(torch.zeros(1, 1, 4), torch.tensor([[3]]), (4,)).item() == pytest.approx(math.log(4))


@pytest.mark.parametrize(("function", "shapes"), [
    (gaussian_nll, [(2, 3), (2, 1), (2, 3)]),
    (standard_normal_kl, [(2, 3), (3,)]),
    (squared_error, [(2, 3, 1), (2, 3)]),
])  # fmt: skip
def test_nothing_is_broadcast(function, shapes):
    with pytest.raises(ValueError, match="must have shape"):
        function(*(torch.ones(shape) for shape in shapes))
