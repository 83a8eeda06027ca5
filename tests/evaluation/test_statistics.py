"""Intervals, against tables and by hand."""

import math

import numpy as np
import pytest

from algorithm.evaluation.statistics import mean_interval, student_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"),  # two-sided 95 %, from any printed table
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228), (30, 2.042), (120, 1.980)],
)
def test_student_quantile_agrees_with_the_table(freedom, quantile):
    assert student_quantile(freedom) == pytest.approx(quantile, abs=5e-4)


def test_student_quantile_tends_to_the_normal_one():
    assert student_quantile(2000) == pytest.approx(1.96, abs=2e-3)


def test_mean_interval_by_hand():
    # mean 2, s = 1, n = 3: half width 4.3027 / √3 = 2.4841
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval.mean == 2.0
    assert interval.half_width == pytest.approx(2.4841, abs=1e-4)


def test_an_interval_reads_well_at_every_size():
    assert mean_interval([1.0, 2.0, 3.0]).text == "2.0 ± 2.5 (Student's 95 %)"
    assert mean_interval([1e30]).text == "1e+30", "not thirty digits, most of which mean nothing"


def test_one_sample_has_a_mean_and_no_interval():
    interval = mean_interval([5.0])
    assert interval.mean == 5.0
    assert math.isnan(interval.half_width)


def test_no_sample_is_refused():
    with pytest.raises(ValueError, match="no samples"):
        mean_interval([])


def test_mean_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    intervals = [mean_interval(rng.normal(3.0, 2.0, 5).tolist()) for _ in range(2000)]
    covered = np.mean([abs(interval.mean - 3.0) <= interval.half_width for interval in intervals])
    assert covered == pytest.approx(0.95, abs=0.02)
