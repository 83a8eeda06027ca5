"""The stopwatch: every second is charged once, and evaluation not at all; rates of events."""

import itertools
import math

import pytest

from algorithm.core.timing import MEASURED, Rate, Stopwatch, shares_text
from algorithm.store.logs.registry import METRICS


def test_each_part_gets_the_time_since_the_part_before():
    """What is skipped counts nowhere; shares are of the time since they were last asked for."""
    clock = itertools.accumulate((1.0, 2.0, 0.5, 4.0, 0.5, 3.0, 1.0), initial=100.0).__next__
    watch = Stopwatch(clock)
    for part in ("act", "update", "other"):
        watch.lap(part)
    watch.skip()
    watch.lap("act")
    first = watch.shares()
    assert watch.total == 4.0 and watch.seconds["act"] == 1.5
    assert first == {f"time/share_{part}": {"act": 0.375, "update": 0.5}.get(part, 0.0) for part in MEASURED}
    watch.lap("compile")  # what few trainings do has a share where there was any
    watch.lap("step")
    second = watch.shares()
    assert (second["time/share_step"], second["time/share_compile"]) == (0.25, 0.75)
    assert first.keys() < second.keys() <= METRICS.keys() and watch.total == 8.0


def test_shares_of_a_hundredth_and_more_are_shown():
    assert shares_text({"act": 2.0, "update": 6.0, "store": 0.05, "other": 0.0}) == "update 75% · act 25%"
    assert shares_text(dict.fromkeys(("act", "update"), 0.0)) == ""


def test_rate_is_of_the_last_seconds():
    rate = Rate(window_s=10, clock=iter([0.0, 1.0, 2.0, 12.0, 22.0, 32.0]).__next__)
    rates = [rate.update(count) for count in (0, 100, 300, 300, 1300, 3300)]  # ten seconds without one
    assert rates == pytest.approx([math.nan, 100, 150, 0, 100, 200], nan_ok=True)
