"""InfoNCE, cosine and value consistency, by pencil and by loops."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.ops.contrastive import cosine_loss, info_nce_accuracy, info_nce_loss, q_consistency_loss

ALL = torch.ones(2, dtype=torch.bool)


def test_info_nce_of_two_pairs_by_hand():
    """Row 1: −log(e²/(e² + e⁰)) = log(1 + e⁻²); row 2: −log(e¹/(e³ + e¹)) = log(1 + e²)."""
    logits = torch.tensor([[2.0, 0.0], [3.0, 1.0]])
    expected = (math.log1p(math.exp(-2)) + math.log1p(math.exp(2))) / 2
    assert info_nce_loss(logits, ALL).item() == pytest.approx(expected)
    assert info_nce_accuracy(logits, ALL).item() == 0.5  # the second prefers the first's positive


def test_logits_that_all_fit_alike_are_worth_the_number_of_pairs():
    logits, valid = torch.full((5, 5), 7.0), torch.tensor([True, True, False, True, False])
    assert info_nce_loss(logits, valid).item() == pytest.approx(math.log(3))
    assert info_nce_accuracy(logits, valid).item() == pytest.approx(1 / 3)


def test_a_constant_on_a_row_changes_nothing_however_large():
    logits = torch.tensor([[2.0, 0.0], [3.0, 1.0]])
    shifted = logits + torch.tensor([[1e4], [-1e4]])
    torch.testing.assert_close(info_nce_loss(shifted, ALL), info_nce_loss(logits, ALL), rtol=1e-3, atol=0)


@given(st.integers(1, 7), st.integers(0, 2**7 - 1), st.integers(0, 99))
def test_info_nce_is_a_loop_over_the_pairs_that_exist(size, mask, seed):
    g = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(size, size, generator=g, dtype=torch.float64)).requires_grad_()
    valid = torch.tensor([bool(mask >> i & 1) for i in range(size)])
    there = [i for i in range(size) if valid[i]]
    losses, hits = [], []
    for i in there:
        row = [logits[i, j].item() for j in there]
        losses.append(math.log(sum(map(math.exp, row))) - logits[i, i].item())
        hits.append(max(row) == logits[i, i].item())
    n = max(1, len(there))
    loss = info_nce_loss(logits, valid)
    assert loss.item() == pytest.approx(sum(losses) / n, abs=1e-9)
    assert info_nce_accuracy(logits.detach(), valid).item() == pytest.approx(sum(hits) / n)
    loss.backward()
    assert not logits.grad[~valid].any() and not logits.grad[:, ~valid].any()
    assert logits.grad.isfinite().all()


def test_cosine_loss_is_0_alike_2_across_and_4_against():
    one = torch.tensor([[3.0, 4.0]] * 4)
    other = torch.tensor([[6.0, 8.0], [-4.0, 3.0], [-0.3, -0.4], [1.0, 0.0]])
    torch.testing.assert_close(cosine_loss(one, other), torch.tensor([0.0, 2.0, 4.0, 0.8]))


def test_cosine_loss_is_the_squared_distance_of_unit_vectors():
    one, other = torch.randn(2, 3, 5, 7)
    units = [x / x.norm(dim=-1, keepdim=True) for x in (one, other)]
    torch.testing.assert_close(cosine_loss(one, other), (units[0] - units[1]).square().sum(-1))


def test_q_consistency_by_hand():
    """Critic 1: 1, 4; critic 2: 9, 0; the third position does not exist: (1 + 4 + 9 + 0) / 4."""
    q = torch.tensor([[[1.0, 2.0, 50.0]], [[3.0, 0.0, 50.0]]])
    valid = torch.tensor([[True, True, False]])
    assert q_consistency_loss(q, torch.zeros_like(q), valid).item() == 3.5
    assert q_consistency_loss(q, torch.zeros_like(q), valid & False).item() == 0.0


def test_wrong_shapes_are_refused_by_name():
    with pytest.raises(ValueError, match="info_nce_loss: logits must have shape"):
        info_nce_loss(torch.zeros(2, 3), ALL)
    with pytest.raises(ValueError, match="cosine_loss: target"):
        cosine_loss(torch.zeros(2, 3), torch.zeros(3))
    with pytest.raises(ValueError, match="q_consistency_loss: valid"):
        q_consistency_loss(torch.zeros(2, 3, 1), torch.zeros(2, 3, 1), torch.ones(3))
