"""Failures that are survived are told, counted and traced."""

from __future__ import annotations

import io

import pytest

from algorithm.env.base import Fault
from algorithm.run.console import close_logging, open_console, setup_logging
from algorithm.run.faults import Faults
from algorithm.run.metrics import METRICS


def fault(copy: int, trace: str = "") -> Fault:
    return Fault(what="Toy-v0 failed in step", where=f"copy {copy}", why="RuntimeError: gone", trace=trace)


@pytest.mark.fault("F12")
def test_a_fault_is_a_warning_a_count_and_a_trace_in_the_log(tmp_path):
    stream = io.StringIO()
    log = tmp_path / "train.log"
    logger = setup_logging(log, debug=False)
    with open_console(stream=stream, logger=logger) as console:
        faults = Faults(console)
        assert faults.metrics == {"fault/env_restarts": 0.0}
        faults(fault(1, "Traceback\n  deep inside\n"))
        faults(fault(2))
    close_logging()
    assert faults.counts == {"env_restarts": 2} and faults.metrics == {"fault/env_restarts": 2.0}
    assert faults.metrics.keys() <= METRICS.keys()
    said = stream.getvalue()
    line = "Toy-v0 failed in step · copy 1 · RuntimeError: gone · started anew"
    assert f"warning: {line}\n" in said and f"warning: again: {line}\n" in said
    assert "deep inside" not in said
    assert log.read_text().count("  deep inside\n") == 1
