"""Intervals, against tables and by hand."""

import math

import pytest

from algorithm.core.wording import plus_minus
from algorithm.run.evaluation.statistics import mean_interval, student_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"),  # two-sided 95 %, from any printed table
    [
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (4, 2.776),
        (9, 2.262),
        (10, 2.228),
        (30, 2.042),
        (120, 1.980),
        (2000, 1.961),
    ],
)
def test_student_quantile_agrees_with_the_table(freedom, quantile):
    assert student_quantile(freedom) == pytest.approx(quantile, abs=5e-4)


def test_mean_interval_by_hand():
    """Mean 2, s = 1, n = 3: half width 4.3027 / √3 = 2.4841; one sample has none."""
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval.mean == 2.0 and interval.half_width == pytest.approx(2.4841, abs=1e-4)
    assert mean_interval([5.0]).mean == 5.0 and math.isnan(mean_interval([5.0]).half_width)
    with pytest.raises(ValueError, match="no samples"):
        mean_interval([])


@pytest.mark.parametrize(
    ("mean", "half_width", "text"),
    [(1234.5, 0.4, "1,234.5 ± 0.4"), (500.0, 0.02, "500.00 ± 0.02"), (2e6, 0.3, "2,000,000 ± 0")],
)
def test_a_small_interval_is_not_shown_as_none(mean, half_width, text):
    assert plus_minus(mean, half_width) == text


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        (1.0, "2.00 ± 2.48"),
        (100.0, "200.0 ± 248.4"),
        (1e6, "2,000,000 ± 2,484,138"),
        (0.01, "0.0200 ± 0.0248"),
        (1e-5, "2.00e-05 ± 2.48e-05"),
        (1e30, "2.00e+30 ± 2.48e+30"),
        (0.0, "0 ± 0"),
    ],
)
def test_an_interval_reads_well_in_every_unit_of_rewards(unit, text):
    assert mean_interval([1.0 * unit, 2.0 * unit, 3.0 * unit]).text == f"{text} (Student's 95 %)"
