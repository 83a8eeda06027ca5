"""Intrinsic rewards: hand numbers, and running statistics against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorithm.ops.extensions import distillation_error, merge_moments, prediction_error, standard_deviation

NONE = tuple(torch.zeros((), dtype=torch.float64) for _ in range(3))


def test_errors_by_hand():
    """½ (1² + 2²) = 2.5 and ½ (0 + 3²) = 4.5; (1 + 0 + 4 + 9) / 4 = 3.5."""
    predicted, actual = torch.tensor([[1.0, 0.0], [5.0, -1.0]]), torch.tensor([[0.0, 2.0], [5.0, 2.0]])
    assert prediction_error(predicted, actual).tolist() == [2.5, 4.5]
    error = distillation_error(torch.tensor([1.0, 2.0, 0.0, -1.0]), torch.tensor([0.0, 2.0, 2.0, 2.0]))
    assert error.item() == 3.5
    for function in (prediction_error, distillation_error):
        with pytest.raises(ValueError, match="must have shape"):
            function(torch.zeros(4, 1), torch.zeros(4, 3))


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
    after = merge_moments(before, torch.tensor([[5.0, bad]]), torch.ones(1, 2, dtype=torch.bool))
    assert before == after
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
