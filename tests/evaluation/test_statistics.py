"""Intervals, against tables and by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithm.evaluation.statistics import bootstrap_band, mean_interval, student_quantile


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
    assert (interval.low + interval.high) / 2 == pytest.approx(2.0)


def test_an_interval_reads_well_at_every_size():
    assert mean_interval([1.0, 2.0, 3.0]).text == "2.0 ± 2.5 (95 %)"
    assert mean_interval([1e30]).text == "1e+30", "not thirty digits, most of which mean nothing"


def test_one_sample_has_a_mean_and_no_interval():
    interval = mean_interval([5.0])
    assert interval.mean == 5.0
    assert math.isnan(interval.low)
    assert math.isnan(interval.half_width)


def test_no_sample_is_refused():
    with pytest.raises(ValueError, match="no samples"):
        mean_interval([])
    with pytest.raises(ValueError, match="runs × points"):
        bootstrap_band(np.zeros((0, 3)))


def test_mean_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    intervals = [mean_interval(rng.normal(3.0, 2.0, 5).tolist()) for _ in range(2000)]
    covered = np.mean([interval.low <= 3.0 <= interval.high for interval in intervals])
    assert covered == pytest.approx(0.95, abs=0.02)


def test_bootstrap_resamples_whole_runs_and_repeats_itself():
    samples = np.array([[0.0, 10.0], [1.0, 9.0], [2.0, 8.0], [3.0, 7.0], [4.0, 6.0]])
    low, high = bootstrap_band(samples)
    # The columns are mirror images, so whole rows drawn together give mirrored ends.
    assert low[0] == pytest.approx(10 - high[1])
    assert high[0] == pytest.approx(10 - low[1])
    # Standard error of the mean of 0…4 under resampling is √(2/5) = 0.632; ±1.96 of it around 2.
    assert low[0] == pytest.approx(2 - 1.24, abs=0.1)
    assert high[0] == pytest.approx(2 + 1.24, abs=0.1)
    again = bootstrap_band(samples)
    assert np.array_equal(low, again[0])
    assert np.array_equal(high, again[1])


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6))
def test_bootstrap_band_stays_within_the_samples(values):
    low, high = bootstrap_band(np.array(values)[:, None], resamples=50)
    assert min(values) - 1e-9 <= low[0] <= high[0] <= max(values) + 1e-9
