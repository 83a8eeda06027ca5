"""Discrete branches: hand numbers, plain categoricals, masks that are exact."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithm.ops import discrete as ops

TWO_BRANCHES = (2, 3)
ALL = torch.ones(5, dtype=torch.bool)


def one_hot(*indices: int, branches=TWO_BRANCHES) -> torch.Tensor:
    return torch.cat([torch.eye(n)[i] for i, n in zip(indices, branches, strict=True)])


def test_probabilities_by_hand():
    logits = torch.tensor([0.0, math.log(3.0), 0.0, 0.0, math.log(2.0)])
    log_probs, probs = ops.branch_log_probs(logits, ALL, TWO_BRANCHES)
    torch.testing.assert_close(probs, torch.tensor([0.25, 0.75, 0.25, 0.25, 0.5]))
    torch.testing.assert_close(log_probs, probs.log())


def test_a_mask_gives_exactly_zero_and_the_rest_shares():
    logits = torch.tensor([100.0, 0.0, 50.0, 0.0, 0.0])
    mask = torch.tensor([False, True, False, True, True])
    log_probs, probs = ops.branch_log_probs(logits, mask, TWO_BRANCHES)
    assert probs.tolist() == [0.0, 1.0, 0.0, 0.5, 0.5]
    assert log_probs.tolist() == [0.0, 0.0, 0.0, pytest.approx(-math.log(2)), pytest.approx(-math.log(2))]


def test_no_gradient_passes_a_mask_and_none_is_nan():
    logits = torch.zeros(5, requires_grad=True)
    mask = torch.tensor([False, True, False, True, True])
    log_probs, probs = ops.branch_log_probs(logits, mask, TWO_BRANCHES)
    ((probs * log_probs).sum() + (probs * torch.arange(5.0)).sum()).backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()
    assert (logits.grad[~mask] == 0).all() and (logits.grad[3:] != 0).all()


def test_padding_in_which_nothing_is_allowed_is_uniform_and_finite():
    log_probs, probs = ops.branch_log_probs(torch.zeros(5), torch.zeros(5, dtype=torch.bool), TWO_BRANCHES)
    torch.testing.assert_close(probs, torch.tensor([0.5, 0.5, 1 / 3, 1 / 3, 1 / 3]))
    assert torch.isfinite(log_probs).all()


def test_entropies_by_hand():
    # H = log 2 and log 3 for uniform branches; with one choice of the second forbidden log 2 is left
    log_probs, probs = ops.branch_log_probs(torch.zeros(5), ALL, TWO_BRANCHES)
    entropy = ops.mean_entropy(log_probs, probs, 2)
    assert entropy.item() == pytest.approx((math.log(2) + math.log(3)) / 2)
    assert ops.largest_entropy(ALL, TWO_BRANCHES).item() == pytest.approx(entropy.item())
    mask = torch.tensor([True, True, True, False, True])
    assert ops.largest_entropy(mask, TWO_BRANCHES).item() == pytest.approx(math.log(2))
    alone = torch.tensor([True, False, False, True, False])
    assert ops.largest_entropy(alone, TWO_BRANCHES).item() == 0.0


def test_values_by_hand():
    q = torch.tensor([1.0, 3.0, 10.0, 20.0, 30.0])
    assert ops.reduce_branches(q, one_hot(1, 0), 2).item() == (3 + 10) / 2
    assert ops.reduce_branches(q, torch.tensor([0.5, 0.5, 0.2, 0.3, 0.5]), 2).item() == (2 + 23) / 2
    several = torch.stack([q, -q])[:, None]  # [E, P, N] against weights [P, N]
    assert ops.reduce_branches(several, one_hot(1, 0)[None], 2).tolist() == [[6.5], [-6.5]]


def test_greedy_takes_the_best_that_is_allowed():
    q = torch.tensor([1.0, 3.0, 30.0, 20.0, 10.0])
    assert ops.greedy_probs(q, ALL, TWO_BRANCHES).tolist() == one_hot(1, 0).tolist()
    mask = torch.tensor([True, False, False, True, True])
    assert ops.greedy_probs(q, mask, TWO_BRANCHES).tolist() == one_hot(0, 1).tolist()


def test_uniform_probabilities_count_what_is_allowed():
    mask = torch.tensor([True, False, False, True, True])
    assert ops.uniform_probs(mask, TWO_BRANCHES, torch.float32).tolist() == [1.0, 0.0, 0.0, 0.5, 0.5]


def test_samples_follow_the_probabilities_and_never_take_a_zero():
    torch.manual_seed(0)
    probs = torch.tensor([0.25, 0.75, 0.0, 0.1, 0.9]).expand(40_000, -1)
    drawn = ops.sample_branches(probs, TWO_BRANCHES, torch.rand(probs.shape))
    assert (drawn[:, :2].sum(-1) == 1).all() and (drawn[:, 2:].sum(-1) == 1).all()
    assert drawn[:, 2].sum() == 0
    torch.testing.assert_close(drawn.mean(0), probs[0], atol=0.01, rtol=0)


def test_a_uniform_number_of_zero_never_takes_what_is_forbidden():
    probs = torch.tensor([[0.0, 1.0]])
    assert ops.sample_branches(probs, (2,), torch.zeros(1, 2)).tolist() == [[0.0, 1.0]]


def test_policy_loss_by_hand():
    # π = ½, ½; α = 2: Σ π (2 log ½ − q) = −2 log 2 − (1 + 3)/2
    log_probs = torch.full((2,), -math.log(2))
    loss = ops.discrete_policy_loss(
        log_probs, log_probs.exp(), torch.tensor([1.0, 3.0]), torch.tensor(2.0), 1
    )
    assert loss.item() == pytest.approx(-2 * math.log(2) - 2)


def test_policy_loss_is_least_at_the_softmax_of_q():
    """The minimum of Σ π (α log π − q) is π ∝ exp(q/α)."""
    q, alpha = torch.tensor([1.0, 0.0, -1.0]), torch.tensor(0.5)
    logits = (q / alpha).requires_grad_()
    log_probs, probs = ops.branch_log_probs(logits, torch.ones(3, dtype=torch.bool), (3,))
    ops.discrete_policy_loss(log_probs, probs, q, alpha, 1).backward()
    torch.testing.assert_close(logits.grad, torch.zeros(3), atol=1e-6, rtol=0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 10_000))
def test_every_branch_is_a_categorical_of_torch(branches, seed):
    """Against torch.distributions on the allowed choices alone, one branch and one row at a time."""
    g = torch.Generator().manual_seed(seed)
    width, rows = sum(branches), 6
    logits, q = torch.randn(rows, width, generator=g), torch.randn(rows, width, generator=g)
    mask = torch.rand(rows, width, generator=g) < 0.6
    log_probs, probs = ops.branch_log_probs(logits, mask, branches)
    entropy, largest = torch.zeros(rows), torch.zeros(rows)
    value = torch.zeros(rows)
    for row in range(rows):
        start = 0
        for n in branches:
            part = slice(start, start + n)
            allowed = mask[row, part].nonzero().squeeze(-1)
            if not len(allowed):
                allowed = torch.arange(n)
            plain = torch.distributions.Categorical(logits=logits[row, part][allowed])
            assert set(probs[row, part].nonzero().squeeze(-1).tolist()) <= set(allowed.tolist())
            torch.testing.assert_close(probs[row, part][allowed], plain.probs)
            entropy[row] += plain.entropy() / len(branches)
            largest[row] += math.log(len(allowed)) / len(branches)
            value[row] += (plain.probs * q[row, part][allowed]).sum() / len(branches)
            start += n
    torch.testing.assert_close(ops.mean_entropy(log_probs, probs, len(branches)), entropy)
    torch.testing.assert_close(ops.largest_entropy(mask, branches), largest)
    torch.testing.assert_close(ops.reduce_branches(q, probs, len(branches)), value)
