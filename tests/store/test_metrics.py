"""One row, three places; names are documented; a kill loses little."""

import io
import json
import logging
import math
import re
import time
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from algorithm.agents.metrics import SIGNALS
from algorithm.core.errors import StorageError, UsageError
from algorithm.store.logs.events import event_file, event_of
from algorithm.store.logs.metrics import MetricsLogger, read_metrics
from algorithm.store.logs.registry import METRICS
from tests.lib.small_disk import files_no_larger_than

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def warned():
    return []


@pytest.fixture
def opened(tmp_path, warned):
    logger = logger_in(tmp_path, warned)
    yield logger
    logger.close()


def logger_in(folder, warned, state=None):
    state = json.loads(json.dumps(state, allow_nan=False))
    return MetricsLogger(
        folder / "log", folder / "metrics.csv", folder / "metrics.jsonl", warn=warned.append, state=state
    )


def points(folder, tag):
    """What TensorBoard shows of a tag."""
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), purge_orphaned_data=True).Reload()
    return [(point.step, point.value) for point in events.Scalars(tag)]


def theirs(**fields):
    """The record of an event as TensorBoard's own package writes it."""
    record = io.BytesIO()
    RecordWriter(record).write(Event(wall_time=time.time(), **fields).SerializeToString())
    return record.getvalue()


@pytest.mark.parametrize("step", [0, 1, 127, 128, 300_000_000, 2**40])
def test_records_are_those_of_the_package(step, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1.7e9 + 0.25)
    row = {"a": 0.0, "loss/ü": -1e-30, "nan": math.nan, "n" * 200: 1e39}
    values = [Summary.Value(tag=name, simple_value=row[name]) for name in ("a", "loss/ü", "n" * 200)]
    assert event_of(step, row) == theirs(step=step, summary=Summary(value=values))
    assert event_of(step, {"nan": math.nan}) == b""
    file = event_file(tmp_path / "log", purge=step)
    file.write(b"row")
    purge = theirs(step=step, session_log=SessionLog(status=SessionLog.START))
    assert file.path.read_bytes() == theirs(file_version="brain.Event:2") + purge + b"row"


def write(logger, *steps):
    for step in steps:
        logger.write(step, {"loss/q": float(step)})
    logger.flush()
    logger.state()


def lines(path):
    return path.read_text().splitlines()


def test_docs_and_registry_tell_the_same():
    page = (ROOT / "docs/metrics.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9_/]+(?:_<signal>)?)` \| ([^|]+) \|", page, re.M)
    told = [
        (name.replace("<signal>", signal), meaning)
        for name, meaning in rows
        for signal in (SIGNALS if "<signal>" in name else [""])
    ]
    assert dict(told) == dict(METRICS)
    assert len(told) == len(METRICS)


def test_a_row_goes_to_the_lines_at_once_and_to_the_table_with_the_next_save(opened, tmp_path):
    opened.write(1, {"loss/q": math.nan, "loss/policy": math.inf})
    opened.write(1, {"loss/alpha": 0.0})
    opened.state()
    opened.write(2, {"eval/return_mean": 1e-9})
    assert lines(tmp_path / "metrics.csv") == [], "the first row was still open"
    opened.flush()
    assert [json.loads(line) for line in lines(tmp_path / "metrics.jsonl")] == [
        {"step": 1, "loss/q": None, "loss/policy": None, "loss/alpha": 0.0},
        {"step": 2, "eval/return_mean": 1e-9},
    ]
    opened.close()
    opened.close()
    assert lines(tmp_path / "metrics.csv") == [
        "step,loss/q,loss/policy,loss/alpha,eval/return_mean",
        "1,,,0.0,",
        "2,,,,1e-09",
    ]
    with pytest.raises(StorageError, match=r"metrics\.csv"):
        logger_in(tmp_path, [])


MISTAKES = {
    "step 4 comes after step 6": lambda log: log.write(4, {"loss/q": 1.0}),
    "step 5 comes after step 6": lambda log: log.write(5, {"loss/policy": 1.0}),
    "written twice for step 6": lambda log: log.write(6, {"loss/q": 1.0}),
    r"(?s)there is no metric 'loss/Q'.*did you mean loss/q\? .*begin with plugin/": lambda log: log.write(
        7, {"loss/Q": 1.0}
    ),
}


@pytest.mark.parametrize("why", MISTAKES)
def test_what_would_not_be_one_row_a_step_is_refused(opened, why):
    for step in (5, 6):
        opened.write(step, {"loss/q": 1.0})
    with pytest.raises((ValueError, UsageError), match=why):
        MISTAKES[why](opened)


def test_behaviours_have_columns_and_a_level_of_their_own(opened, tmp_path):
    opened.write(1, {"loss/q": 1.0}, behaviour="left")
    opened.write(1, {"loss/q": 2.0}, behaviour="right")
    opened.write(1, {"unity/sys/rss_mb": 3.0})
    opened.close()
    columns = "step,left/loss/q,right/loss/q,unity/sys/rss_mb"
    assert lines(tmp_path / "metrics.csv") == [columns, "1,1.0,2.0,3.0"]
    folders = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("events.*")}
    assert folders == {"log", "log/left", "log/right"}


@pytest.mark.fault("F02")
def test_a_resumed_logger_goes_on_where_the_state_was_taken(opened, tmp_path, warned):
    opened.write(1, {"loss/q": 1.0})
    opened.write(2, {"loss/q": 2.0, "loss/policy": math.nan})
    state = opened.state()  # row 2 may still grow
    opened.write(2, {"eval/length": 9.0})
    opened.write(3, {"loss/q": 3.0, "eval/return_mean": 9.0})
    opened.close()
    with (tmp_path / "metrics.jsonl").open("a") as jsonl:
        jsonl.write('{"step": 4, "lo')
    resumed = logger_in(tmp_path, warned, state)
    assert lines(tmp_path / "metrics.csv") == ["step,loss/q", "1,1.0"], "later columns go as well"
    assert points(tmp_path / "log", "loss/q") == [(1, 1.0)], "purged before the next row"
    resumed.write(2, {"eval/return_mean": 5.0})
    resumed.write(3, {"loss/q": 4.0})
    resumed.close()
    assert lines(tmp_path / "metrics.csv") == [
        "step,loss/q,loss/policy,eval/return_mean",
        "1,1.0,,",
        "2,2.0,,5.0",
        "3,4.0,,",
    ]
    assert points(tmp_path / "log", "loss/q") == [(1, 1.0), (2, 2.0), (3, 4.0)]
    assert warned == []


ROW = '{"step": 1, "loss/q": 1.0}\n'


@pytest.mark.parametrize(
    ("content", "told", "kept"),
    [
        (f'{ROW}{{"step": 2, "loss/q": "x"}}\nnonsense\n{ROW}', "2 damaged lines dropped", [1]),
        (None, "is gone", []),
    ],
)
def test_lines_that_are_damaged_or_gone_are_told_and_gone_on_without(
    opened, tmp_path, warned, content, told, kept
):
    opened.write(1, {"loss/q": 1.0})
    opened.flush()
    state = opened.state()
    file = tmp_path / "metrics.jsonl"
    file.unlink() if content is None else file.write_text(content)
    resumed = logger_in(tmp_path, warned, state)
    resumed.write(4, {"loss/q": 4.0})
    resumed.close()
    (warning,) = warned
    assert str(file) in warning and told in warning
    assert [json.loads(line)["step"] for line in lines(file)] == [*kept, 4]
    assert len(lines(tmp_path / "metrics.csv")) == len(kept) + 2


@pytest.mark.fault("F08")
def test_rows_that_cannot_be_written_wait_and_are_never_halved(opened, tmp_path, warned):
    write(opened, 1)
    first = (tmp_path / "metrics.jsonl").read_text()
    with files_no_larger_than(len(first) + 3):
        write(opened, 2, 3, 4)
        assert (tmp_path / "metrics.jsonl").read_text() == first + '{"s', "the disk took a part"
        assert lines(tmp_path / "metrics.csv") == ["step,loss/q", "1,1.0"]
        assert len(warned) == 1
    write(opened, 5)
    assert warned[1:] == ["metrics are written again, no row was lost"]
    rows = [(step, float(step)) for step in range(1, 6)]
    assert lines(tmp_path / "metrics.csv") == ["step,loss/q", *(f"{step},{value}" for step, value in rows)]
    assert [json.loads(line)["step"] for line in lines(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4, 5]
    assert points(tmp_path / "log", "loss/q") == rows


@pytest.mark.fault("F08")
def test_closing_tries_once_more_and_says_what_is_missing(tmp_path, warned):
    opened = logger_in(tmp_path, warned)
    with files_no_larger_than(0):
        for step in (1, 2):
            opened.write(step, {"loss/q": 1.0})
        opened.close()
    assert "2 in " in warned[-1] and "metrics.jsonl" in warned[-1] and "log" in warned[-1]
    opened.close()
    assert len(lines(tmp_path / "metrics.csv")) == 3, "the second time there was room"


def test_reading_leaves_out_a_torn_last_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss/q": 0.5}\n{"step": 2, "loss/q": null}\n{"step": 3, "lo')
    columns = read_metrics(path)
    assert columns["step"] == [1.0, 2.0]
    assert columns["loss/q"] == pytest.approx([0.5, math.nan], nan_ok=True)


@pytest.mark.parametrize(
    "row", ['"step": 1', '"loss/q": 1', '"step": 4, "loss/q": []', f'"step": {2**53}', '"step": 2.5']
)
def test_damage_is_named_where_metrics_are_read(tmp_path, row):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{{{row}}}\n')
    with pytest.raises(StorageError, match=r"metrics\.jsonl"):
        read_metrics(path)
