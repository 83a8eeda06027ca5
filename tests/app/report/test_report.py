"""The page about a run: what it says, of runs in every state, and that it never fails for what it finds."""

import json
import math
import os

import pytest

from algorithm.app.report.command import matching_names
from algorithm.app.report.facts import Facts
from algorithm.app.report.report import LARGEST_VIDEO, write_report
from algorithm.core.errors import StorageError, UsageError
from algorithm.store.lock import Holder
from tests.lib.made_runs import CURVE, RESULT, make_run, metrics_text
from tests.lib.pages import read

pytestmark = pytest.mark.usefixtures("task")


def page_of(run):
    path = write_report(run)
    assert path == run.path / "report.html"
    return read(path.read_text("utf-8"))


def test_the_page_of_a_finished_run():
    page = page_of(make_run())
    for text in (
        "task, run Pendulum-v1 · finished · seed 7 · started 2026-01-02 03:04 UTC",
        "last evaluation -2.50 ± 0.50 (Student's 95 %), step 400",
        "best evaluation -2.50 ± 0.50 (Student's 95 %)",
        "environment steps 400 updates 200 training time 0:08 50 steps/s",
        "faults survived 1 env restarts 1",
        "sac_config.tau 0.02 0.01",  # this run, the default
        "sac_config.batch_size 16 256",
        "base_config.env_name Pendulum-v1 none",
        "machine box, Linux, 2 processors",
        "versions python 3.11.0, torch 2.0",
        "program commit abcdef, with changes that were not committed",
        "time spent on update 75% · step 25%",
        "python main.py ./task -n run --resume --max_step=800",
        "python main.py ./task -n run --eval=100 Watch",
        "python main.py ./task -n run --video",
        "python main.py ./task --report run",
        "tensorboard --logdir models/task",
    ):
        assert text in page.shown, text
    assert "rich" not in page.shown  # not installed there
    assert "sac_config.gamma" not in page.shown  # at its default
    labels = [str(svg.get("aria-label")) for svg in page.all("svg")]
    assert sum("evaluation, Student's 95 % interval from -8 to -2.5" in label for label in labels) == 1
    assert "Critic loss: loss from 0.5 to 0.125, lowest 0.125, highest 0.5" in labels
    assert "Faults survived: env restarts from 0 to 1, lowest 0, highest 1" in labels
    assert not any(label.startswith("Temperature") for label in labels)  # it was not measured


def test_the_lessons_of_a_run_are_a_chart():
    columns = {**CURVE, "lesson/d": (0.0, 0.0, 1.0, 1.0)}
    labels = [
        str(svg.get("aria-label")) for svg in page_of(make_run(metrics=metrics_text(columns))).all("svg")
    ]
    assert "Lessons, from 0: d from 0 to 1, lowest 0, highest 1" in labels


def test_the_commands_of_a_run_that_was_resumed_and_has_a_best_checkpoint():
    run = make_run(result={**RESULT, "further": ["-o", "a=null"]}, metrics=metrics_text({}, ()))
    manifest = json.loads(run.manifest.read_text())
    run.manifest.write_text(json.dumps({**manifest, "resumed": [{"step": 200}, {"step": 1300}]}))
    run.checkpoints.mkdir()
    (run.checkpoints / "best.json").write_text("{}")
    shown = page_of(run).shown
    assert "-n run --resume -o a=null Evaluate" in shown and "resumed 2 times, at step 200, 1,300" in shown
    for flags in ("--eval=100", "--video", "--watch"):
        assert f"python main.py ./task -n run {flags} --ckpt=best" in shown


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        (
            "metrics.jsonl",
            b'{"step": 1, "a": "a"}\n',
            "metrics.jsonl cannot be used: metrics are damaged",
        ),
        ("metrics.jsonl", b"\xff\xfe\x00", "metrics.jsonl cannot be used"),
        ("manifest.json", b"{", "manifest.json cannot be used: a JSON file is damaged"),
        ("manifest.json", b"[]", "manifest.json cannot be used"),
        ("result.json", b"null", "result.json cannot be used"),
        ("config.yaml", b"sac_config: {tau: much}\n", "config.yaml cannot be used"),
        ("run.lock", b"\xff", ""),
    ],
)
def test_a_damaged_file_is_named_and_the_rest_is_shown(file, content, told):
    run = make_run()
    (run.path / file).write_bytes(content)
    page = page_of(run)
    assert told in page.shown
    assert "python main.py ./task -n run --resume" in page.shown


def test_an_empty_folder_has_a_page_too():
    run = make_run(metrics=None, result=None)
    for file in run.path.iterdir():
        file.unlink()
    shown = page_of(run).shown
    for text in ("manifest.json is missing", "seed unknown", "Nothing was measured yet."):
        assert text in shown


@pytest.mark.parametrize(
    ("state", "files", "holder"),
    [
        ("finished", {}, None),
        ("finished", {}, {}),  # the page is written while this very process still holds the lock
        (
            "stopped before its end",
            {"result": {**RESULT, "steps": 130, "last_eval": None}, "metrics": metrics_text({}, ())},
            None,
        ),
        ("ended without a result", {"result": None}, None),
        ("killed", {"result": None}, {"pid": 2**22 + 1}),
        ("still running, process 7 on elsewhere", {"result": None}, {"pid": 7, "host": "elsewhere"}),
    ],
)
def test_states_of_a_run(state, files, holder):
    run = make_run(**files)
    if holder is not None:
        run.lock.write_text(json.dumps(json.loads(Holder.me().text) | holder))
    assert Facts.gather(run).state.startswith(state)


def test_a_run_that_goes_on_is_not_what_its_old_result_says():
    run = make_run(result={**RESULT, "steps": 200, "updates": 1})
    facts = Facts.gather(run)
    assert facts.state == "ended without a result"
    assert (facts.last_step, facts.updates, facts.seconds) == (400, None, None)
    assert facts.last_evaluation("default").mean == -2.5
    assert facts.faults == {"env_restarts": 1}
    assert "as of the last summary" in page_of(run).shown


def test_the_best_evaluation_of_a_killed_run_is_found():
    better = {**CURVE, "eval/return_mean": (-9.0, -1.0, -1.0, -2.0)}
    facts = Facts.gather(make_run(result=None, metrics=metrics_text(better)))
    assert (facts.best_evaluation("default").mean, facts.best_evaluation("default").step) == (-1, 200)
    assert facts.last_evaluation("default").step == 400


def test_every_behaviour_has_its_curves():
    both = {f"{name}/{metric}": values for name in ("left", "right") for metric, values in CURVE.items()}
    both["left/unity/eval/return_mean"] = CURVE["eval/return_mean"]  # no behaviour of the name left/unity
    both["right/eval/return_mean"] = (math.nan, 4.25, math.nan, 3.25)
    page = page_of(make_run(metrics=metrics_text(both)))
    for text in (
        "last evaluation, left -2.50",
        "best evaluation, right 4.25",
        "Learning curve: left",
        "Diagnostics: right",
    ):
        assert text in page.shown
        assert "left/unity" not in page.shown
    assert len(page.all("svg")) > 2 * 3


def test_a_small_film_is_in_the_page_and_a_large_one_beside_it():
    run = make_run()
    run.videos.mkdir()
    for age, name in ((300, "old.mp4"), (200, "new one.mp4")):
        (run.videos / name).write_bytes(b"film")
        os.utime(run.videos / name, (1e9 - age, 1e9 - age))
    page = page_of(run)
    (film,) = page.all("video")
    assert film["src"] == "data:video/mp4;base64,ZmlsbQ==" and "new one.mp4" in film["aria-label"]
    assert [link["href"] for link in page.all("a")] == ["videos/old.mp4"]
    os.truncate(run.videos / "new one.mp4", LARGEST_VIDEO + 1)
    page = page_of(run)
    assert page.all("video") == []
    assert [link["href"] for link in page.all("a")] == ["videos/new%20one.mp4", "videos/old.mp4"]


@pytest.mark.fault("F08")
def test_a_page_that_cannot_be_written_is_a_storage_error():
    run = make_run()
    (run.path / "report.html").mkdir()
    with pytest.raises(StorageError, match="cannot be written"):
        write_report(run)


def test_names_and_patterns_choose_runs():
    for age, name in enumerate(("base", "base_2", "other")):
        os.utime(make_run(name).config, (1e9 + age, 1e9 + age))
    assert matching_names("task", ("base*",)) == ["base", "base_2"]
    assert matching_names("task", ("other", "base?2", "other", "b*")) == ["other", "base_2", "base"]
    assert matching_names("task", ("none",)) == ["none"]
    with pytest.raises(UsageError) as caught:
        matching_names("task", ("base", "tuned*"))
    assert "'tuned*'" in caught.value.what and "other, base_2, base" in caught.value.why
