"""One row, three places; names are documented; a kill loses little."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from algorithm.errors import StorageError
from algorithm.run.files import write_text
from algorithm.run.metrics import METRICS, MetricsLogger, Rate, read_metrics

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def opened(tmp_path):
    logger = MetricsLogger(tmp_path / "log", tmp_path / "metrics.csv", tmp_path / "metrics.jsonl")
    yield logger
    logger.close()


def lines(path):
    return path.read_text().splitlines()


def test_docs_and_registry_tell_the_same():
    rows = re.findall(
        r"^\| `([a-z0-9_/]+)` \| (.+?) \| ([^|]+) \|$", (ROOT / "docs/metrics.md").read_text(), re.M
    )
    assert {name: meaning for name, _, meaning in rows} == dict(METRICS)
    assert [name for name, _, _ in rows if len(rows) != len(METRICS)] == []


def test_a_row_goes_to_csv_and_jsonl(opened, tmp_path):
    opened.write(1000, {"loss/q": 0.1, "replay/size": 1000})
    opened.flush()
    opened.write(2000, {"loss/q": 1e-9, "replay/size": 2000})
    opened.flush()
    assert lines(tmp_path / "metrics.csv") == [
        "step,loss/q,replay/size",
        "1000,0.1,1000.0",
        "2000,1e-09,2000.0",
    ]
    rows = [json.loads(line) for line in lines(tmp_path / "metrics.jsonl")]
    assert rows == [
        {"step": 1000, "loss/q": 0.1, "replay/size": 1000.0},
        {"step": 2000, "loss/q": 1e-9, "replay/size": 2000.0},
    ]


def test_a_new_column_widens_the_table(opened, tmp_path):
    opened.write(1, {"loss/q": 1.0})
    opened.write(2, {"eval/return_mean": 5.0})
    opened.write(3, {"eval/length": 7.0, "loss/q": 3.0})
    opened.flush()
    assert lines(tmp_path / "metrics.csv") == [
        "step,loss/q,eval/return_mean,eval/length",
        "1,1.0,,",
        "2,,5.0,",
        "3,3.0,,7.0",
    ]


def test_a_kill_while_widening_leaves_the_narrow_table(opened, tmp_path, monkeypatch):
    opened.write(1, {"loss/q": 1.0})
    opened.flush()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    opened.write(2, {"eval/length": 5.0})
    with pytest.raises(StorageError):
        opened.flush()
    assert lines(tmp_path / "metrics.csv") == ["step,loss/q", "1,1.0"]


def test_what_is_not_finite_is_empty_and_null(opened, tmp_path):
    opened.write(1, {"loss/q": math.nan, "loss/policy": math.inf, "loss/alpha": 0.0})
    opened.flush()
    assert lines(tmp_path / "metrics.csv")[1] == "1,,,0.0"
    assert json.loads(lines(tmp_path / "metrics.jsonl")[0]) == {
        "step": 1,
        "loss/q": None,
        "loss/policy": None,
        "loss/alpha": 0.0,
    }


def test_values_of_one_step_become_one_row(opened, tmp_path):
    opened.write(1, {"loss/q": 1.0})
    opened.write(1, {"eval/length": 2.0})
    opened.flush()
    assert lines(tmp_path / "metrics.csv") == ["step,loss/q,eval/length", "1,1.0,2.0"]


def test_steps_strictly_increase(opened):
    opened.write(5, {"loss/q": 1.0})
    with pytest.raises(ValueError, match="step 4 comes after step 5"):
        opened.write(4, {"loss/q": 1.0})
    with pytest.raises(ValueError, match="written twice for step 5"):
        opened.write(5, {"loss/q": 1.0})
    opened.flush()
    with pytest.raises(ValueError, match="step 5 comes after step 5"):
        opened.write(5, {"loss/policy": 1.0})
    opened.write(6, {"loss/q": 1.0})


def test_an_unknown_name_is_refused(opened):
    with pytest.raises(ValueError, match=r"'loss/Q' is not in METRICS; did you mean loss/q\?"):
        opened.write(1, {"loss/Q": 1.0})


def test_behaviours_have_columns_and_a_level_of_their_own(opened, tmp_path):
    opened.write(1, {"loss/q": 1.0}, behaviour="left")
    opened.write(1, {"loss/q": 2.0}, behaviour="right")
    opened.write(1, {"sys/rss_mb": 3.0})
    opened.flush()
    assert lines(tmp_path / "metrics.csv") == ["step,left/loss/q,right/loss/q,sys/rss_mb", "1,1.0,2.0,3.0"]
    folders = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("events.*")}
    assert folders == {"log", "log/left", "log/right"}


def test_tensorboard_reads_the_same_numbers(opened, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for step in (10, 20):
        opened.write(step, {"loss/q": step / 4, "loss/policy": math.nan})
    opened.flush()
    events = EventAccumulator(str(tmp_path / "log")).Reload()
    assert [(point.step, point.value) for point in events.Scalars("loss/q")] == [(10, 2.5), (20, 5.0)]
    assert events.Tags()["scalars"] == ["loss/q"]


@pytest.mark.fault("F02")
def test_a_killed_process_loses_nothing_that_was_flushed(tmp_path):
    code = (
        "import os, signal, sys; from pathlib import Path; from algorithm.run.metrics import MetricsLogger\n"
        "p = Path(sys.argv[1]); m = MetricsLogger(p / 'log', p / 'm.csv', p / 'm.jsonl')\n"
        "m.write(1, {'loss/q': 1.5}); m.write(2, {'loss/q': 2.5}); m.flush(); m.write(3, {'loss/q': 3.5})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment)
    assert killed.returncode == -9
    assert read_metrics(tmp_path / "m.csv") == {"step": [1.0, 2.0], "loss/q": [1.5, 2.5]}
    assert len(lines(tmp_path / "m.jsonl")) == 2


def test_closing_commits_and_may_happen_twice(opened, tmp_path):
    opened.write(1, {"loss/q": 1.0})
    opened.close()
    opened.close()
    assert lines(tmp_path / "metrics.csv") == ["step,loss/q", "1,1.0"]


def test_another_run_is_never_overwritten(opened, tmp_path):
    with pytest.raises(StorageError, match=r"metrics\.csv"):
        MetricsLogger(tmp_path / "log", tmp_path / "metrics.csv", tmp_path / "other.jsonl")


def test_reading_leaves_out_a_torn_last_line_and_names_damage(tmp_path):
    path = tmp_path / "metrics.csv"
    write_text(path, "step,loss/q\n1,0.5\n2,\n3,0.12")
    columns = read_metrics(path)
    assert columns["step"] == [1.0, 2.0]
    assert columns["loss/q"][0] == 0.5
    assert math.isnan(columns["loss/q"][1])
    write_text(path, "step,loss/q\n1\n")
    with pytest.raises(StorageError, match=r"metrics\.csv"):
        read_metrics(path)
    write_text(path, "")
    assert read_metrics(path) == {"step": []}
    with pytest.raises(StorageError, match="cannot be read"):
        read_metrics(tmp_path / "absent.csv")


def test_rate_is_of_the_last_seconds():
    now = iter([0.0, 1.0, 2.0, 12.0, 22.0, 32.0])
    rate = Rate(window_s=10, clock=lambda: next(now))
    assert math.isnan(rate.update(0))
    assert rate.update(100) == 100.0
    assert rate.update(300) == 150.0
    assert rate.update(300) == 0.0  # ten seconds without one
    assert rate.update(1300) == 100.0
    assert rate.update(3300) == 200.0
