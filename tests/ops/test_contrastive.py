"""InfoNCE, cosine and value consistency, by pencil and by loops."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.ops.extensions import cosine_loss, info_nce_accuracy, info_nce_loss, q_consistency_loss

ALL = torch.ones(2, dtype=torch.bool)


def test_info_nce_of_two_pairs_by_hand():
    """Row 1: −log(e²/(e² + e⁰)) = log(1 + e⁻²); row 2: −log(e¹/(e³ + e¹)) = log(1 + e²).

    A constant on a row changes nothing, however large.
    """
    expected = (math.log1p(math.exp(-2)) + math.log1p(math.exp(2))) / 2
    for far in (0.0, 1e4):
        logits = torch.tensor([[2.0, 0.0], [3.0, 1.0]]) + torch.tensor([[far], [-far]])
        assert info_nce_loss(logits, ALL).item() == pytest.approx(expected, rel=1e-3 if far else 1e-6)
        assert info_nce_accuracy(logits, ALL).item() == 0.5  # the second prefers the first's positive


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
