"""Discrete branches: hand numbers, plain categoricals, masks that are exact."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.ops import discrete as ops

TWO_BRANCHES = (2, 3)
ALL = torch.ones(5, dtype=torch.bool)
SOME = torch.tensor([True, False, False, True, True])


def one_hot(*indices: int) -> torch.Tensor:
    return torch.cat([torch.eye(n)[i] for i, n in zip(indices, TWO_BRANCHES, strict=True)])


def test_a_mask_gives_exactly_zero_and_no_gradient_passes_it():
    logits = torch.tensor([0.0, 100.0, 50.0, 0.0, math.log(3.0)], requires_grad=True)
    log_probs, probs = ops.branch_log_probs(logits, SOME, TWO_BRANCHES)
    torch.testing.assert_close(probs, torch.tensor([1.0, 0.0, 0.0, 0.25, 0.75]))
    assert not probs[~SOME].any() and not log_probs[~SOME].any()
    ((probs * log_probs).sum() + (probs * torch.arange(5.0)).sum()).backward()
    assert logits.grad.isfinite().all()
    assert not logits.grad[~SOME].any() and logits.grad[3:].all()


def test_padding_in_which_nothing_is_allowed_is_uniform_and_finite():
    log_probs, probs = ops.branch_log_probs(torch.zeros(5), ALL & False, TWO_BRANCHES)
    torch.testing.assert_close(probs, torch.tensor([0.5, 0.5, 1 / 3, 1 / 3, 1 / 3]))
    assert torch.isfinite(log_probs).all()


def test_values_by_hand():
    q = torch.tensor([1.0, 3.0, 10.0, 20.0, 30.0])
    assert ops.reduce_branches(q, one_hot(1, 0), 2).item() == (3 + 10) / 2
    several = torch.stack([q, -q])[:, None]  # [E, P, N] against weights [P, N]
    assert ops.reduce_branches(several, one_hot(1, 0)[None], 2).tolist() == [[6.5], [-6.5]]


def test_greedy_and_uniform_choices_are_those_that_are_allowed():
    q = torch.tensor([1.0, 3.0, 30.0, 20.0, 10.0])
    assert torch.equal(ops.greedy_probs(q, ALL, TWO_BRANCHES), one_hot(1, 0))
    assert torch.equal(ops.greedy_probs(q, SOME, TWO_BRANCHES), one_hot(0, 1))
    assert ops.uniform_probs(SOME, TWO_BRANCHES, torch.float32).tolist() == [1.0, 0.0, 0.0, 0.5, 0.5]


def test_samples_follow_the_probabilities_and_never_take_a_zero():
    probs = torch.tensor([0.25, 0.75, 0.0, 0.1, 0.9]).expand(40_000, -1)
    drawn = ops.sample_branches(probs, TWO_BRANCHES, torch.rand(probs.shape))
    assert (drawn[:, :2].sum(-1) == 1).all() and (drawn[:, 2:].sum(-1) == 1).all() and not drawn[:, 2].any()
    torch.testing.assert_close(drawn.mean(0), probs[0], atol=0.01, rtol=0)
    assert ops.sample_branches(torch.tensor([[0.0, 1.0]]), (2,), torch.zeros(1, 2)).tolist() == [[0.0, 1.0]]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_every_branch_is_a_categorical_of_torch(branches):
    """Against torch.distributions on the allowed choices alone, one branch and one row at a time."""
    logits, q = torch.randn(2, 6, sum(branches))
    mask = torch.rand(logits.shape) < 0.6
    log_probs, probs = ops.branch_log_probs(logits, mask, branches)
    found = [
        ops.mean_entropy(log_probs, probs, len(branches)),
        ops.largest_entropy(mask, branches),
        ops.reduce_branches(q, probs, len(branches)),
    ]
    expected = torch.zeros(3, 6)
    for row in range(6):
        for part in torch.arange(sum(branches)).split(branches):
            allowed = part[mask[row, part]] if mask[row, part].any() else part
            plain = torch.distributions.Categorical(logits=logits[row, allowed])
            torch.testing.assert_close(probs[row, allowed], plain.probs)
            value = (plain.probs * q[row, allowed]).sum()
            of_part = torch.stack([plain.entropy(), torch.tensor(math.log(len(allowed))), value])
            expected[:, row] += of_part / len(branches)
    torch.testing.assert_close(torch.stack(found), expected)
