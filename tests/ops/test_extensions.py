"""Losses and rewards of extensions: by pencil, by loops, by numpy and torch.distributions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical, Normal, kl_divergence

from algorithm.ops.extensions import (
    bounded_std,
    choice_error,
    cosine_loss,
    distillation_error,
    gaussian_nll,
    info_nce_accuracy,
    info_nce_loss,
    merge_moments,
    prediction_error,
    q_consistency_loss,
    squared_error,
    standard_deviation,
    standard_normal_kl,
    transition_loss,
)

ALL = torch.ones(2, dtype=torch.bool)
NONE = tuple(torch.zeros((), dtype=torch.float64) for _ in range(3))


@given(st.lists(st.booleans(), min_size=1, max_size=7))
def test_info_nce_is_a_loop_over_the_pairs_that_exist(exists):
    valid, size = torch.tensor(exists), len(exists)
    logits = (3 * torch.randn(size, size, dtype=torch.float64)).requires_grad_()
    there, losses, hits = [i for i in range(size) if exists[i]], [], []
    for i in there:
        row = [logits[i, j].item() for j in there]
        losses.append(math.log(sum(map(math.exp, row))) - logits[i, i].item())
        hits.append(max(row) == logits[i, i].item())
    loss, n = info_nce_loss(logits, valid), max(1, len(there))
    assert loss.item() == pytest.approx(sum(losses) / n, abs=1e-9)
    assert info_nce_accuracy(logits.detach(), valid).item() == pytest.approx(sum(hits) / n)
    loss.backward()
    assert not logits.grad[~valid].any() and not logits.grad[:, ~valid].any()
    assert logits.grad.isfinite().all()


def test_cosine_loss_is_0_alike_2_across_and_4_against():
    one = torch.tensor([[3.0, 4.0]] * 4)
    other = torch.tensor([[6.0, 8.0], [-4.0, 3.0], [-0.3, -0.4], [1.0, 0.0]])
    torch.testing.assert_close(cosine_loss(one, other), torch.tensor([0.0, 2.0, 4.0, 0.8]))


def test_q_consistency_by_hand():
    """Critic 1: 1, 4; critic 2: 9, 0; the third position does not exist: (1 + 4 + 9 + 0) / 4."""
    q = torch.tensor([[[1.0, 2.0, 50.0]], [[3.0, 0.0, 50.0]]])
    valid = torch.tensor([[True, True, False]])
    assert q_consistency_loss(q, torch.zeros_like(q), valid).item() == 3.5
    assert q_consistency_loss(q, torch.zeros_like(q), valid & False).item() == 0.0


def test_errors_by_hand():
    """½ (1² + 2²) = 2.5 and ½ (0 + 3²) = 4.5; (1 + 0 + 4 + 9) / 4 = 3.5."""
    predicted, actual = torch.tensor([[1.0, 0.0], [5.0, -1.0]]), torch.tensor([[0.0, 2.0], [5.0, 2.0]])
    assert prediction_error(predicted, actual).tolist() == [2.5, 4.5]
    error = distillation_error(torch.tensor([1.0, 2.0, 0.0, -1.0]), torch.tensor([0.0, 2.0, 2.0, 2.0]))
    assert error.item() == 3.5


VALUES = st.lists(st.tuples(st.floats(-1e3, 1e3, width=32), st.booleans()), min_size=1, max_size=6)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_moments_are_those_of_all_values_at_once(batches):
    moments = NONE
    for batch in batches:
        x, valid = zip(*batch, strict=True)
        moments = merge_moments(moments, torch.tensor([x]), torch.tensor([valid]))
    every = np.array([x for batch in batches for x, valid in batch if valid], np.float32).astype(np.float64)
    assert moments[0].item() == len(every)
    if len(every):
        assert moments[1].item() == pytest.approx(every.mean(), abs=1e-6)
        assert moments[2].item() == pytest.approx(every.var() * len(every), rel=1e-6, abs=1e-4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_with_one_that_is_not_finite_change_nothing(bad):
    before = merge_moments(NONE, torch.tensor([[1.0, 2.0]]), torch.ones(1, 2, dtype=torch.bool))
    assert before == merge_moments(before, torch.tensor([[5.0, bad]]), torch.ones(1, 2, dtype=torch.bool))
    padded = merge_moments(before, torch.tensor([[5.0, bad]]), torch.tensor([[True, False]]))
    assert padded[0].item() == 3.0 and torch.isfinite(torch.stack(padded)).all()


@pytest.mark.parametrize(
    ("values", "deviation"),
    [
        ([], 1.0),
        ([3.0], 1.0),
        ([3.0, 3.0], 1.0),
        ([1.0, 1.0 + 1e-9], 1.0),
        ([1.0, 3.0, 8.0], np.std([1, 3, 8])),
    ],
)
def test_before_there_is_a_deviation_it_is_1(values, deviation):
    x = torch.tensor([values], dtype=torch.float64)
    count, _, square = merge_moments(NONE, x, torch.ones_like(x, dtype=torch.bool))
    assert standard_deviation(count, square).item() == pytest.approx(deviation)


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
    (prediction_error, [(4, 1), (4, 3)]),
    (distillation_error, [(4, 1), (4, 3)]),
    (gaussian_nll, [(2, 3), (2, 1), (2, 3)]),
    (standard_normal_kl, [(2, 3), (3,)]),
    (squared_error, [(2, 3, 1), (2, 3)]),
])  # fmt: skip
def test_nothing_is_broadcast(function, shapes):
    with pytest.raises(ValueError, match="must have shape"):
        function(*(torch.ones(shape) for shape in shapes))
