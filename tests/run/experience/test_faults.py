"""Failures that are survived are shown, counted and traced."""

import io

import pytest

from algorithm.app.console.output import close_logging, open_console, setup_logging
from algorithm.env.base import Fault
from algorithm.run.experience.faults import Faults
from algorithm.store.logs.registry import METRICS


@pytest.mark.fault("F10")
@pytest.mark.fault("F11")
@pytest.mark.fault("F12")
def test_what_is_survived_is_a_warning_a_count_and_a_trace_in_the_log(tmp_path):
    stream, log = io.StringIO(), tmp_path / "train.log"
    with open_console(output=stream, logger=setup_logging(log, debug=True)) as console:
        faults, later = Faults(console), Faults(console)
        faults(Fault(what="Toy-v0 failed", where="copy 1", why="RuntimeError: gone", trace="  deep inside\n"))
        faults.dropped("the first one", warn=True)
        faults.dropped("the second one", warn=False)
        faults.skipped("a step skipped")
        faults.rolled_back("gone back")
        later.load_state(faults.state())
        later.rolled_back("gone back")
    close_logging()
    assert faults.counts == {"env_restarts": 1, "non_finite": 2, "rollbacks": 1}
    assert later.counts == {"env_restarts": 1, "non_finite": 2, "rollbacks": 2}
    assert faults.metrics["fault/env_restarts"] == 1.0 and faults.metrics.keys() <= METRICS.keys()
    said, logged = stream.getvalue(), log.read_text()
    shown = ("Toy-v0 failed · copy 1 · RuntimeError: gone", "the first one", "a step skipped", "gone back")
    assert [text for text in shown if f"warning: {text}" not in said] == []
    assert "second" not in said and "the second one" in logged
    assert "deep inside" not in said and logged.count("  deep inside\n") == 1
