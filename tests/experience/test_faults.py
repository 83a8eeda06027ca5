"""Failures that are survived are told, counted and traced."""

from __future__ import annotations

import io

import pytest

from algorithm.app.console.output import close_logging, open_console, setup_logging
from algorithm.env.base import Fault
from algorithm.experience.faults import Faults
from algorithm.runs.logs.metrics import METRICS


def fault(copy: int, trace: str = "") -> Fault:
    return Fault(what="Toy-v0 failed in step", where=f"copy {copy}", why="RuntimeError: gone", trace=trace)


@pytest.mark.fault("F12")
def test_a_fault_is_a_warning_a_count_and_a_trace_in_the_log(tmp_path):
    stream = io.StringIO()
    log = tmp_path / "train.log"
    logger = setup_logging(log, debug=False)
    with open_console(stream=stream, logger=logger) as console:
        faults = Faults(console)
        assert set(faults.metrics.values()) == {0.0}
        faults(fault(1, "Traceback\n  deep inside\n"))
        faults(fault(2))
        console.message("on it goes")
    close_logging()
    assert faults.counts == {"env_restarts": 2, "non_finite": 0, "rollbacks": 0}
    assert faults.metrics["fault/env_restarts"] == 2.0 and faults.metrics.keys() <= METRICS.keys()
    said = stream.getvalue()
    line = "Toy-v0 failed in step · copy 1 · RuntimeError: gone · started anew"
    assert f"warning: {line}\n" in said and f"warning: again: {line}\n" in said
    assert "deep inside" not in said
    assert log.read_text().count("  deep inside\n") == 1


@pytest.mark.fault("F10")
def test_dropped_episodes_are_counted_and_told_or_only_logged(tmp_path):
    stream, log = io.StringIO(), tmp_path / "train.log"
    with open_console(stream=stream, logger=setup_logging(log, debug=True)) as console:
        faults = Faults(console)
        faults.dropped("the first one", warn=True)
        faults.dropped("the second one", warn=False)
    close_logging()
    assert faults.counts["non_finite"] == 2 and faults.metrics["fault/non_finite"] == 2.0
    assert "warning: the first one\n" in stream.getvalue() and "second" not in stream.getvalue()
    assert "the second one" in log.read_text()


@pytest.mark.fault("F11")
def test_roll_backs_are_counted_and_skipped_steps_only_told():
    stream = io.StringIO()
    with open_console(stream=stream) as console:
        faults = Faults(console)
        faults.skipped("a step skipped")
        faults.rolled_back("gone back")
    assert faults.counts == {"env_restarts": 0, "non_finite": 0, "rollbacks": 1}
    assert "warning: a step skipped\n" in stream.getvalue() and "warning: gone back\n" in stream.getvalue()


def test_counts_go_on_in_another_process():
    with open_console(stream=io.StringIO()) as console:
        faults, other = Faults(console), Faults(console)
        faults(fault(1))
        for _ in range(2):
            faults.dropped("", warn=False)
        for _ in range(3):
            faults.rolled_back("")
        other.load_state(faults.state())
        other(fault(1))
    assert other.counts == {"env_restarts": 2, "non_finite": 2, "rollbacks": 3}
