"""The stopwatch: every second is charged once, and evaluation not at all."""

from __future__ import annotations

import pytest

from algorithm.core.timing import MEASURED, Stopwatch
from algorithm.runs.logs.metrics import METRICS


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_part_gets_the_time_since_the_part_before():
    clock = Clock()
    watch = Stopwatch(clock)
    for part, seconds in (("act", 1.0), ("step", 2.0), ("store", 0.5), ("act", 3.0), ("other", 0.25)):
        clock.now += seconds
        watch.lap(part)
    spent = {"act": 4.0, "step": 2.0, "store": 0.5, "other": 0.25}
    expected = dict.fromkeys(("wait", "sample", "update", "compile"), 0.0) | spent
    assert watch.seconds == expected
    assert watch.total == 6.75 == clock.now - 100.0


def test_what_is_skipped_counts_nowhere():
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now += 5.0
    watch.skip()
    clock.now += 1.0
    watch.lap("update")
    assert watch.total == watch.seconds["update"] == 1.0


def test_shares_are_of_the_time_since_they_were_last_asked_for():
    clock = Clock()
    watch = Stopwatch(clock)
    assert watch.shares() == {}, "no time, no shares"
    for part, seconds in (("act", 1.0), ("update", 2.0), ("other", 1.0)):
        clock.now += seconds
        watch.lap(part)
    first = watch.shares()
    assert first["time/share_act"] == 0.25 and first["time/share_update"] == 0.5
    clock.now += 2.0
    watch.lap("step")
    second = watch.shares()
    assert second == {f"time/share_{part}": float(part == "step") for part in MEASURED}
    assert first.keys() == second.keys() <= METRICS.keys()


def test_what_was_read_does_not_change():
    clock = Clock()
    watch = Stopwatch(clock)
    before = watch.seconds
    clock.now += 1.0
    watch.lap("act")
    assert before["act"] == 0.0
    with pytest.raises(KeyError):
        watch.lap("sleep")  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["wait", "compile"])
def test_what_few_trainings_do_has_a_share_where_there_was_any(part):
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now += 1.0
    watch.lap("update")
    assert f"time/share_{part}" not in watch.shares()
    for each, seconds in ((part, 3.0), ("store", 1.0)):
        clock.now += seconds
        watch.lap(each)
    assert watch.shares()[f"time/share_{part}"] == 0.75
    assert watch.seconds[part] == 3.0
