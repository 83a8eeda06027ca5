"""Losses of the world model: hand numbers, torch.distributions, and what must not matter."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

from algorithm.ops.prediction import (
    bounded_std,
    choice_error,
    gaussian_nll,
    squared_error,
    standard_normal_kl,
    transition_loss,
)

LOG_2PI = math.log(2 * math.pi)


def test_standard_deviations_stay_within_their_bounds():
    raw = torch.tensor([-1e9, -100.0, 0.0, 100.0, 1e9], requires_grad=True)
    std = bounded_std(raw)
    torch.testing.assert_close(std, torch.tensor([0.1, 0.1, 0.55, 1.0, 1.0]))
    assert std.min() >= 0.1 and std.max() <= 1.0
    std.sum().backward()
    assert raw.grad.isfinite().all() and raw.grad[2] == pytest.approx(0.225)  # 0.9 · ½ · ½


def test_likelihood_by_hand():
    # x − μ = (1, 0), σ = (½, 1): ½·2² + log ½ and 0 + 0, whose mean is 1 − ½ log 2
    nll = gaussian_nll(torch.tensor([1.0, 5.0]), torch.tensor([0.0, 5.0]), torch.tensor([0.5, 1.0]))
    assert nll.item() == pytest.approx(1.0 - 0.5 * math.log(2.0) + 0.5 * LOG_2PI)


def test_divergence_by_hand():
    # ½(μ² + σ² − 1) − log σ: μ = 2, σ = 1 gives 2; μ = 0, σ = ½ gives −⅜ + log 2
    kl = standard_normal_kl(torch.tensor([[2.0], [0.0], [0.0]]), torch.tensor([[1.0], [0.5], [1.0]]))
    torch.testing.assert_close(kl, torch.tensor([2.0, -0.375 + math.log(2.0), 0.0]))


def test_both_are_those_of_torch():
    target, mean, raw = torch.randn(3, 4, 5, 6)
    std = bounded_std(raw)
    expected = -Normal(mean, std).log_prob(target).mean(-1)
    torch.testing.assert_close(gaussian_nll(target, mean, std), expected)
    standard = Normal(torch.zeros(()), torch.ones(()))
    torch.testing.assert_close(
        standard_normal_kl(mean, std), kl_divergence(Normal(mean, std), standard).mean(-1)
    )


def test_transition_loss_by_hand():
    # σ = 1; errors 1 and 3 and μ = 1 and −1: (½ + ½ log 2π + kl·½) and (4½ + ½ log 2π + kl·½)
    mean = torch.tensor([[[1.0], [-1.0]]])
    target, std = torch.tensor([[[2.0], [2.0]]]), torch.ones(1, 2, 1)
    both, first = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[True, False]])
    assert transition_loss(target, mean, std, both, kl=0.8).item() == pytest.approx(2.9 + 0.5 * LOG_2PI)
    assert transition_loss(target, mean, std, first, kl=0.0).item() == pytest.approx(0.5 + 0.5 * LOG_2PI)
    assert transition_loss(target, mean, std, ~both, kl=0.8).item() == 0.0


def test_every_window_counts_alike():
    """A window is drawn the more often the more of it exists, so its own mean counts once."""
    valid = torch.tensor([[True, True, True], [True, False, False]])
    target = torch.tensor([[1.0, 1.0, 1.0], [5.0, 9.0, 9.0]]).unsqueeze(-1)
    zero, one = torch.zeros(2, 3, 1), torch.ones(2, 3, 1)
    loss = transition_loss(target, zero, one, valid, kl=0.0)
    assert loss.item() == pytest.approx((1 + 25) / 4 + 0.5 * LOG_2PI)


def test_squared_error_by_hand():
    # (1, 2, 2, 1) against 0: mean of (1, 4, 4, 1)
    x = torch.tensor([1.0, 2.0, 2.0, 1.0]).view(1, 1, 2, 2)
    assert squared_error(x, torch.zeros_like(x)).tolist() == [[2.5]]
    scalars = torch.tensor([[3.0, 0.0]])
    assert squared_error(scalars, torch.zeros(1, 2)).tolist() == [[9.0, 0.0]]


def test_choices_are_each_among_their_own_categories():
    logits = torch.randn(2, 3, 5)
    chosen = torch.tensor([[[0, 2], [1, 0], [1, 1]], [[0, 0], [0, 1], [1, 2]]], dtype=torch.int8)
    first = -Categorical(logits=logits[..., :2]).log_prob(chosen[..., 0].long())
    second = -Categorical(logits=logits[..., 2:]).log_prob(chosen[..., 1].long())
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


def test_choices_and_masks_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="logits must have shape"):
        choice_error(torch.zeros(1, 1, 4), torch.zeros(1, 1, 2), (2, 3))
    x = torch.zeros(2, 3, 4)
    with pytest.raises(ValueError, match="valid must have shape"):
        transition_loss(x, x, x, torch.ones(2, 1, dtype=torch.bool), kl=0.0)
