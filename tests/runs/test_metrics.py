"""One row, three places; names are documented; a kill loses little."""

import json
import logging
import math
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import imageio.v3 as iio
import numpy as np
import pytest

from algorithm.core.errors import StorageError
from algorithm.runs.files import write_text
from algorithm.runs.logs.metrics import METRICS, MetricsLogger, Rate, read_metrics
from tests.runs.kills import Killed
from tests.runs.small_disk import files_no_larger_than

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


def images(folder, tag):
    """The pictures that it shows."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), {"images": 0}, purge_orphaned_data=True).Reload()
    return [(image.step, iio.imread(image.encoded_image_string)) for image in events.Images(tag)]


def lines(path):
    return path.read_text().splitlines()


def test_docs_and_registry_tell_the_same():
    rows = re.findall(
        r"^\| `([a-z0-9_/]+)` \| (.+?) \| ([^|]+) \|$", (ROOT / "docs/metrics.md").read_text(), re.M
    )
    assert {name: meaning for name, _, meaning in rows} == dict(METRICS)
    assert [name for name, _, _ in rows if len(rows) != len(METRICS)] == []


def test_a_row_goes_to_the_lines_at_once_and_to_the_table_with_the_next_save(opened, tmp_path):
    opened.write(1000, {"loss/q": 0.1, "replay/size": 1000})
    opened.state()
    opened.write(2000, {"loss/q": 1e-9, "replay/size": 2000})
    assert lines(tmp_path / "metrics.csv") == [], "the first row was still open"
    opened.flush()
    assert len(lines(tmp_path / "metrics.jsonl")) == 2
    opened.state()
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


def test_columns_come_in_the_order_of_their_first_rows_and_what_is_not_finite_is_empty(opened, tmp_path):
    opened.write(1, {"loss/q": math.nan, "loss/policy": math.inf})
    opened.write(1, {"loss/alpha": 0.0})
    opened.write(2, {"eval/return_mean": 5.0})
    opened.close()
    opened.close()
    assert lines(tmp_path / "metrics.csv") == [
        "step,loss/q,loss/policy,loss/alpha,eval/return_mean",
        "1,,,0.0,",
        "2,,,,5.0",
    ]
    row = {"step": 1, "loss/q": None, "loss/policy": None, "loss/alpha": 0.0}
    assert json.loads(lines(tmp_path / "metrics.jsonl")[0]) == row
    with pytest.raises(StorageError, match=r"metrics\.csv"):
        logger_in(tmp_path, [])


def test_a_kill_while_the_table_is_written_leaves_the_old_one(opened, tmp_path, monkeypatch):
    opened.write(1, {"loss/q": 1.0})
    opened.flush()
    opened.state()
    opened.write(2, {"eval/length": 5.0})
    opened.flush()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(Killed))
        opened.state()
    assert lines(tmp_path / "metrics.csv") == ["step,loss/q", "1,1.0"]


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
    with pytest.raises(ValueError, match=r"'loss/Q' is not in METRICS; did you mean loss/q\?"):
        opened.write(7, {"loss/Q": 1.0})
    picture = {"observation/a": np.zeros((2, 2, 1), np.uint8)}
    opened.show(8, {})
    with pytest.raises(ValueError, match="pictures of step 8 without a row"):
        opened.show(8, picture)


def test_behaviours_have_columns_and_a_level_of_their_own(opened, tmp_path):
    opened.write(1, {"loss/q": 1.0}, behaviour="left")
    opened.write(1, {"loss/q": 2.0}, behaviour="right")
    opened.write(1, {"unity/sys/rss_mb": 3.0})
    opened.close()
    columns = "step,left/loss/q,right/loss/q,unity/sys/rss_mb"
    assert lines(tmp_path / "metrics.csv") == [columns, "1,1.0,2.0,3.0"]
    folders = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("events.*")}
    assert folders == {"log", "log/left", "log/right"}


def test_pictures_of_a_row_that_is_open_are_in_the_state(opened, tmp_path, warned):
    """A checkpoint is usually taken in the step whose row has just been begun."""
    shown = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    for step in (1, 2):
        opened.write(step, {"loss/q": 1.0})
        opened.show(step, {"observation/a": shown + step})
    opened.write(2, {"loss/q": 1.0}, behaviour="grey")
    opened.show(2, {"observation/a": shown[..., :1]}, behaviour="grey")
    state = opened.state()
    opened.write(3, {"loss/q": 1.0})
    opened.show(3, {"observation/a": shown})
    opened.close()
    resumed = logger_in(tmp_path, warned, state)
    resumed.write(3, {"loss/q": 1.0})
    resumed.show(3, {"observation/a": shown + 3})
    resumed.close()
    for step, value in images(tmp_path / "log", "observation/a"):
        assert np.array_equal(value, shown + step)
    assert [step for step, _ in images(tmp_path / "log", "observation/a")] == [1, 2, 3]
    ((_, grey),) = images(tmp_path / "log/grey", "observation/a")
    assert np.array_equal(grey, shown[..., 0])


@pytest.mark.fault("F02")
def test_a_resumed_logger_goes_on_where_the_state_was_taken(opened, tmp_path, warned):
    opened.write(1, {"loss/q": 1.0})
    opened.write(2, {"loss/q": 2.0, "loss/policy": math.nan})
    state = opened.state()  # row 2 may still grow
    opened.write(2, {"eval/length": 9.0})
    opened.write(3, {"loss/q": 3.0, "eval/return_mean": 9.0})
    opened.close()
    assert len(lines(tmp_path / "metrics.csv")) == 4
    with (tmp_path / "metrics.jsonl").open("a") as jsonl:
        jsonl.write('{"step": 4, "lo')
    resumed = logger_in(tmp_path, warned, state)
    assert lines(tmp_path / "metrics.csv") == ["step,loss/q", "1,1.0"], "later columns go as well"
    assert lines(tmp_path / "metrics.jsonl") == ['{"step": 1, "loss/q": 1.0}']
    assert points(tmp_path / "log", "loss/q") == [(1, 1.0)], "purged before the next row"
    with pytest.raises(ValueError, match="step 1 comes after step 2"):
        resumed.write(1, {"loss/q": 1.0})
    resumed.write(2, {"eval/return_mean": 5.0})
    resumed.write(3, {"loss/q": 4.0})
    resumed.close()
    assert lines(tmp_path / "metrics.csv") == [
        "step,loss/q,loss/policy,eval/return_mean",
        "1,1.0,,",
        "2,2.0,,5.0",
        "3,4.0,,",
    ]
    assert [json.loads(line)["step"] for line in lines(tmp_path / "metrics.jsonl")] == [1, 2, 3]
    assert points(tmp_path / "log", "loss/q") == [(1, 1.0), (2, 2.0), (3, 4.0)]
    assert warned == []


def test_damaged_lines_are_told_and_gone_on_without(opened, tmp_path, warned):
    for step in (1, 2, 3):
        opened.write(step, {"loss/q": float(step)})
    opened.flush()
    state = opened.state()
    row = '{"step": 1, "loss/q": 1.0}\n'
    third = row.replace("1", "3")
    (tmp_path / "metrics.jsonl").write_text(f'{row}{{"step": 2, "loss/q": "x"}}\nnonsense\n{third}{third}')
    resumed = logger_in(tmp_path, warned, state)
    assert [text.replace(str(tmp_path), "") for text in warned] == ["/metrics.jsonl: 2 damaged lines dropped"]
    resumed.write(4, {"loss/q": 4.0})
    resumed.close()
    assert [json.loads(line)["step"] for line in lines(tmp_path / "metrics.jsonl")] == [1, 3, 4]
    assert lines(tmp_path / "metrics.csv") == ["step,loss/q", "1,1.0", "3,3.0", "4,4.0"]


def test_a_missing_file_is_told_and_begins_anew(opened, tmp_path, warned):
    opened.write(1, {"loss/q": 1.0})
    opened.flush()
    state = opened.state()
    (tmp_path / "metrics.jsonl").unlink()
    resumed = logger_in(tmp_path, warned, state)
    assert [text.replace(str(tmp_path), "") for text in warned] == [
        "/metrics.jsonl is gone; it begins anew, and metrics.csv with it"
    ]
    resumed.write(4, {"loss/q": 4.0})
    resumed.close()
    assert lines(tmp_path / "metrics.jsonl") == ['{"step": 4, "loss/q": 4.0}']
    assert lines(tmp_path / "metrics.csv") == ["step,loss/q", "4,4.0"]


def test_rows_wait_for_a_file_that_was_removed_while_the_run_wrote_to_it(opened, tmp_path, warned):
    opened.write(1, {"loss/q": 1.0})
    opened.flush()
    opened.state()
    (tmp_path / "metrics.jsonl").rename(tmp_path / "aside")
    opened.write(2, {"loss/q": 2.0})
    opened.flush()
    opened.state()
    assert "it was removed while the run wrote to it" in warned[0] and len(warned) == 1
    assert lines(tmp_path / "metrics.csv") == ["step,loss/q", "1,1.0"]
    (tmp_path / "aside").rename(tmp_path / "metrics.jsonl")
    opened.close()
    assert lines(tmp_path / "metrics.csv") == ["step,loss/q", "1,1.0", "2,2.0"]


WRITER = """\
import json, os, sys
from pathlib import Path
from algorithm.runs.logs.metrics import MetricsLogger

folder, last = Path(sys.argv[1]), int(sys.argv[2])
saved = folder / "state.json"
before = json.loads(saved.read_text()) if saved.exists() else {"step": 0, "metrics": None}
metrics = MetricsLogger(
    folder / "log", folder / "m.csv", folder / "m.jsonl", warn=print, state=before["metrics"]
)
if not saved.exists():
    saved.write_text(json.dumps({"step": 0, "metrics": metrics.state()}))
print("ready", flush=True)
for step in range(before["step"] + 1, last + 1):
    metrics.write(step, {"loss/q": step / 3, "time/updates_per_s": 1.0})
    if step % 5 == 0:
        metrics.write(step, {"eval/length": float(step)})
    if step > 40:
        metrics.write(step, {"loss/policy": 1 / step})
        metrics.write(step, {"loss/q": step / 7}, behaviour="left")
    if step % 7 == 0:
        draft = folder / "draft"
        draft.write_text(json.dumps({"step": step, "metrics": metrics.state()}))
        draft.replace(saved)
metrics.close()
"""


def written(folder, last):
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(last)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.fault("F02")
def test_a_run_killed_at_any_moment_has_the_rows_of_one_that_never_was(tmp_path):
    rng, last = random.Random(6), 150
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    for target in sorted(rng.sample(range(20, 110), 2)):
        process = written(killed, last)
        assert process.stdout.readline() == "ready\n"
        while json.loads((killed / "state.json").read_text())["step"] < target:
            assert process.poll() is None
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.01))
        process.kill()
        assert process.wait() == -9
        process.stdout.close()
    for folder in (straight, killed):
        said, _ = written(folder, last).communicate()
        assert said == "ready\n", "no warning"
    for name in ("m.csv", "m.jsonl"):
        assert (killed / name).read_bytes() == (straight / name).read_bytes()
    assert len(lines(killed / "m.csv")) == last + 1
    for folder, tag, first in (("log", "loss/q", 1), ("log", "loss/policy", 41), ("log/left", "loss/q", 41)):
        assert points(killed / folder, tag) == points(straight / folder, tag)
        assert [step for step, _ in points(killed / folder, tag)] == list(range(first, last + 1))
    assert len(list((killed / "log").glob("events.*"))) == 3


@pytest.mark.fault("F08")
def test_rows_that_cannot_be_written_wait_and_are_never_halved(opened, tmp_path, warned):
    opened.write(1, {"loss/q": 1.0})
    opened.flush()
    opened.state()
    first = '{"step": 1, "loss/q": 1.0}'
    with files_no_larger_than(len(first) + 1 + 3):
        for step in (2, 3):
            opened.write(step, {"loss/q": float(step)})
        opened.write(4, {"loss/q": 4.0, "loss/policy": 0.5})
        opened.flush()
        opened.state()
        assert (tmp_path / "metrics.jsonl").read_text() == first + '\n{"s', "the disk took a part"
        assert lines(tmp_path / "metrics.csv") == ["step,loss/q", "1,1.0"]
        assert len(warned) == 1
        assert "metrics cannot be written" in warned[0]
        assert "training goes on" in warned[0]
    opened.write(5, {"loss/q": 5.0})
    opened.close()
    assert warned[1:] == ["metrics are written again, no row is missing"]
    assert lines(tmp_path / "metrics.csv") == [
        "step,loss/q,loss/policy", "1,1.0,", "2,2.0,", "3,3.0,", "4,4.0,0.5", "5,5.0,",
    ]  # fmt: skip
    assert [json.loads(line)["step"] for line in lines(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4, 5]
    assert points(tmp_path / "log", "loss/q") == [(step, float(step)) for step in (1, 2, 3, 4, 5)]


@pytest.mark.fault("F08")
def test_a_table_that_cannot_be_written_is_told_and_made_up_for(opened, tmp_path, warned):
    opened.write(1, {"loss/q": 1.0})
    opened.flush()
    (tmp_path / "metrics.csv").unlink()
    (tmp_path / "metrics.csv").mkdir()
    opened.state()
    opened.write(2, {"loss/q": 2.0})
    opened.flush()
    assert len(warned) == 1 and "metrics.csv" in warned[0]
    (tmp_path / "metrics.csv").rmdir()
    opened.state()
    assert warned[1:] == ["metrics are written again, no row is missing"]
    assert lines(tmp_path / "metrics.csv") == ["step,loss/q", "1,1.0", "2,2.0"]


@pytest.mark.fault("F08")
def test_closing_tries_once_more_and_says_what_is_missing(tmp_path, warned):
    opened = logger_in(tmp_path, warned)
    with files_no_larger_than(0):
        for step in (1, 2):
            opened.write(step, {"loss/q": 1.0})
        opened.close()
    assert warned[-1].startswith("rows of metrics are missing for ever: 2 in ")
    assert [word for word in ("metrics.jsonl", "log") if word in warned[-1]] == ["metrics.jsonl", "log"]
    opened.close()
    assert len(lines(tmp_path / "metrics.csv")) == 3, "the second time there was room"


def test_reading_leaves_out_a_torn_last_line_and_names_damage(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write_text(path, '{"step": 1, "loss/q": 0.5}\n{"step": 2, "loss/q": null}\n{"step": 3, "lo')
    columns = read_metrics(path)
    assert columns["step"] == [1.0, 2.0]
    assert columns["loss/q"][0] == 0.5
    assert math.isnan(columns["loss/q"][1])
    for damage in ('"step": 1', '"loss/q": 1', '"step": 4, "loss/q": []', f'"step": {2**53}', '"step": 2.5'):
        write_text(path, f'{{"step": 1}}\n{{{damage}}}\n')
        with pytest.raises(StorageError, match=r"metrics\.jsonl"):
            read_metrics(path)
    write_text(path, "")
    assert read_metrics(path) == {"step": []}
    with pytest.raises(StorageError, match="cannot be read"):
        read_metrics(tmp_path / "absent.jsonl")


def test_rate_is_of_the_last_seconds():
    now = iter([0.0, 1.0, 2.0, 12.0, 22.0, 32.0])
    rate = Rate(window_s=10, clock=lambda: next(now))
    assert math.isnan(rate.update(0))
    assert rate.update(100) == 100.0
    assert rate.update(300) == 150.0
    assert rate.update(300) == 0.0  # ten seconds without one
    assert rate.update(1300) == 100.0
    assert rate.update(3300) == 200.0
