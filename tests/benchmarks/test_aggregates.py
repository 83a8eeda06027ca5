"""Statistics over runs of several tasks: rliable's numbers, hand numbers, curves on common grids."""

import math

import numpy as np
import pytest

from benchmarks.aggregates import (
    Curve,
    course,
    estimate,
    improvement,
    interquartile_mean,
    profile,
)
from benchmarks.rliable_numbers import OURS, THEIRS
from benchmarks.sides import course_plots, rows, standings
from benchmarks.standings import first_reached


def strata(scores):
    return list(scores.T)


def curve(score, step=None, core=None):
    score = np.array(score, np.float64)
    step = np.arange(1, len(score) + 1) * 100.0 if step is None else np.array(step, np.float64)
    return Curve(step, score, step / 10 if core is None else np.array(core, np.float64))


def test_rliable_has_the_same_numbers():
    """Points to 1e-12, the ends of intervals within what two bootstraps differ by."""
    for found, point, low, high in (
        (estimate([x[:, None] for x in strata(OURS)]), 0.8235714285714284, 0.6399, 0.9681),
        (improvement(strata(OURS), strata(THEIRS)), 0.5637755102040816, 0.403, 0.719),
    ):
        assert found.value[0] == pytest.approx(point, abs=1e-12)
        assert (found.low[0], found.high[0]) == pytest.approx((low, high), abs=0.02)
    above = profile(strata(OURS), np.array([0.5, 1.0, 1.5]))
    assert above.value == pytest.approx([0.78571429, 0.35714286, 0.03571429], abs=1e-8)
    assert above.low == pytest.approx([0.643, 0.179, 0.0], abs=0.04)
    assert above.high == pytest.approx([0.929, 0.536, 0.107], abs=0.04)


def test_statistics_by_hand():
    # Of 1 … 9 ⌊9/4⌋ = 2 are cut at each end: (3 + … + 7) / 5. Of three nothing is.
    assert interquartile_mean(np.array([9.0, 1, 8, 2, 7, 3, 6, 4, 5])) == 5.0
    assert interquartile_mean(np.array([0.0, 0.0, 9.0])) == 3.0
    # A task with one run is that run in every resample; the other is 0, 0.5 or 1 in the mean of both.
    mean = estimate([np.array([[4.0]]), np.array([[0.0], [2.0]])], lambda values: values.mean(-1))
    assert (mean.value[0], mean.low[0], mean.high[0]) == (2.0, 4 / 3, 8 / 3)
    # First task: 1 > 0, 1 = 1 (½), 3 > both: 3.5 of 4. Second: 0 of 1.
    better = improvement([np.array([1.0, 3.0]), np.array([0.0])], [np.array([0.0, 1.0]), np.array([5.0])])
    assert better.value[0] == (3.5 / 4 + 0) / 2
    again = [improvement(strata(OURS), strata(THEIRS)).low[0] for _ in range(2)]
    assert again[0] == again[1]


def test_curves_meet_on_a_grid():
    """The first task ends at 200 steps and keeps what it has there while the other goes on to 300."""
    grid, mean = course({"a": [curve([0, 4]), curve([2, 6, 100])], "b": [curve([1, 1, 7])]}, "step")
    assert (grid[0], grid[-1]) == (100.0, 300.0)
    at = dict(zip(grid.tolist(), mean.value.tolist(), strict=True))
    assert (at[100.0], at[200.0], at[300.0]) == (1.0, 11 / 3, 17 / 3)
    assert course({"a": [curve([1, 2], core=[math.nan, 3])]}, "core") is None
    assert course({"a": []}, "step") is None
    once = {"a": {"t": [curve([5]), curve([7])]}}
    assert [line.has_dots for line in course_plots(once, {"a": 0})[0].lines] == [True] * 3, "it is seen"


def test_when_a_level_is_reached():
    one = curve([0, 5, 1, 5, 6])
    assert [first_reached(one, 5, running=n) for n in (1, 2, 3)] == [20.0, 40.0, math.inf]
    assert first_reached(curve([9]), 5, running=2) == math.inf


def test_sides_by_hand():
    """All end at 200 steps, after 20 s or 40 s; half of it is 100 steps. One of our two runs beats theirs."""
    sides = {
        "peer": {"t": [curve([1, 5])]},
        "ours": {"t": [curve([2, 4], core=[10, 40]), curve([4, 8, 50], core=[10, 40, 90])]},
        "none": {"t": []},
    }
    assert rows(standings(sides, "peer")) == [
        ["peer", "5 [5, 5]", "0.333", "1", ""],
        ["ours", "6 [4, 8]", "0.667", "3", "0.5 [0, 1]"],
    ]
    assert standings(sides, "gone")[1].better is None


def test_nothing_is_compared_where_it_was_not_measured():
    """The second run begins to be evaluated where the first one has ended."""
    early, late = curve([0.0, 4.0], [100, 200]), curve([6.0, 8.0], [300, 400])
    [one] = rows(standings({"ours": {"a": [early, late]}}, "ours"))
    assert one[1] == one[3] == "unknown"
    apart = rows(standings({"early": {"a": [early]}, "late": {"a": [late]}}, "early"))
    assert [row[1] for row in apart] == ["4 [4, 4]", "unknown"] and not apart[1][4]


def test_the_end_is_the_last_step_where_all_were_evaluated():
    """Between 100 and 300 steps the slow one was never measured, and of eight at once one is 4 steps late."""
    quick, slow = curve([1.0, 2.0, 3.0], [100, 200, 250]), curve([5.0, 0.0], [104, 300])
    found = rows(standings({"quick": {"a": [quick]}, "slow": {"a": [slow]}}, "quick"))
    assert [row[1] for row in found] == ["1 [1, 1]", "5 [5, 5]"] and found[1][4] == "1 [1, 1]"
