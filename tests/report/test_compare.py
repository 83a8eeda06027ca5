"""Experiments beside each other: which runs belong together, and what is said of them."""

import os
from pathlib import Path

import numpy as np
import pytest

from algorithm.app.report.compare import comparison, file_stem, matching_names, write_comparison
from algorithm.app.report.curves import Series
from algorithm.app.report.experiments import Experiment, first_step_at, grouped, level_of, mean_over
from algorithm.app.report.facts import Facts
from algorithm.app.report.settings import differences
from main import main
from tests.report.made_runs import CURVE, make_run, metrics_text
from tests.report.pages import read

pytestmark = pytest.mark.usefixtures("task")


def curve(returns, steps=None, label="x"):
    steps = np.arange(1, len(returns) + 1) * 100.0 if steps is None else np.array(steps, np.float64)
    nothing = np.zeros(0)
    returns = np.array(returns, np.float64)
    return Series(
        label=label,
        eval_step=steps,
        eval_return=returns,
        eval_ci95=np.ones_like(steps),
        train_step=nothing,
        train_return=nothing,
    )


def evaluated(*means):
    return metrics_text({**CURVE, "eval/return_mean": means})


def facts_of(*names):
    return [Facts.gather(make_run(name)) for name in names]


def test_runs_of_repeat_are_one_experiment():
    runs = facts_of("base", "other", "base_2", "base_10", "base_1", "lone_2", "base_02")
    assert [(one.name, [run.run.name for run in one.runs]) for one in grouped(runs)] == [
        ("base", ["base", "base_2", "base_10"]),
        ("other", ["other"]),
        ("base_1", ["base_1"]),  # --repeat begins at 2
        ("lone_2", ["lone_2"]),  # there is no run "lone"
        ("base_02", ["base_02"]),
    ]


def test_the_command_writes_one_page_or_a_comparison(capsys):
    for name in ("base", "base_2", "seed[1]"):
        make_run(name, seed=7 + (name == "base_2"))
    for names in (["base"], ["base", "base_2"], ["seed[1]"]):
        assert main(["./task", "--report", *names]) == 0
    folder = "models/task"
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}/base/report.html",
        f"{folder}/compare_base.html",
        f"{folder}/compare_base.png",
        f"{folder}/compare_seed[1].html",
        f"{folder}/compare_seed[1].png",
    ]
    shown = read(Path(folder, "compare_base.html").read_text()).shown
    assert "All runs have the same configuration, but for their seeds." in shown
    assert main(["./task", "--report", "rum"]) == 6
    assert "no run 'rum'" in capsys.readouterr().err


def test_runs_without_metrics_have_a_page_without_picture():
    (path,) = write_comparison([make_run("a", metrics=None, result=None)])
    shown = read(path.read_text()).shown
    assert "None of these runs was evaluated yet." in shown and "a: metrics.jsonl is missing" in shown


def test_file_names_are_short_and_differ():
    assert file_stem(["a", "b"]) == "compare_a_vs_b"
    long = [f"experiment_{k}" for k in range(50)]
    assert len(file_stem(long)) < 120
    assert file_stem(long) != file_stem([*long, "one more"])
    assert file_stem(long) == file_stem(list(long))


def test_the_level_is_nine_tenths_of_the_way_up():
    # First evaluations 0 and 10: 5 in the mean. The best mean is 105: 5 + 0.9 · 100.
    slow, fast = [curve([0, 50, 55])], [curve([0, 90, 100]), curve([20, 110, 110])]
    assert level_of({"slow": slow, "fast": fast}) == pytest.approx(95)
    assert level_of({"falling": [curve([5, 4, 3])]}) is None
    assert level_of({"none": []}) is None
    assert level_of({"apart": [curve([1], [100]), curve([2], [200])]}) is None


def test_the_step_where_a_level_is_reached():
    assert first_step_at(curve([1, 5, 3, 9]), 5) == 200
    assert first_step_at(curve([1, 5]), 6) is None


def test_the_area_by_hand():
    steps, values = np.array([0.0, 10.0, 30.0]), np.array([0.0, 10.0, 30.0])
    assert mean_over(steps, values, 0, 30) == pytest.approx(15)
    assert mean_over(steps, values, 5, 15) == pytest.approx(10)
    # 0 → 10 over ten steps, then flat at 10 for twenty: (50 + 200) / 30
    assert mean_over(steps, np.array([0.0, 10.0, 10.0]), 0, 30) == pytest.approx(250 / 30)
    assert mean_over(steps, values, 10, 10) == 10


def test_a_comparison_by_hand():
    nan = float("nan")
    make_run("base", metrics=evaluated(nan, 0, nan, 10), result=None)
    make_run("base_2", seed=8, metrics=evaluated(nan, 2, nan, 14), result=None)
    make_run("new", overrides=("sac_config.tau=0.5",), metrics=evaluated(nan, 1, nan, 40), result=None)
    runs = [Facts.gather(run) for run in map(_opened, ("base", "base_2", "new"))]
    page = read(comparison(grouped(runs)))
    for text in (
        "task: base against new 2 experiments, 3 runs",
        # 12 ± t(1) · s/√2 with t = 12.706 and s = 2.828; area (1 + 12) / 2 of means 0…10 and 2…14;
        # the level is 1 + 0.9 · 39, and only the new one gets there.
        "base 7, 8 12.0 ± 25.4 12.0 ± 25.4 6.5 ± 19.1 none of 2",
        "new 7 40 40 20.5 400 (1 of 1)",
        "mean return, steps 200 to 400 steps to 36.1",
        "sac_config.tau 0.02 0.5 0.01",
        "python main.py ./task --report base base_2 new",
        "base_2 8 ended without a result 400 14.0 ± 0.5",
    ):
        assert text in page.shown, text
    assert "sac_config.batch_size" not in page.shown  # the same in all of them
    assert "sac_config.seed" not in page.shown


def _opened(name):
    from algorithm.runs.rundir import RunDir

    return RunDir.open("task", name, argument="./task")


def test_the_page_links_to_the_pages_of_the_runs():
    run = make_run("a b")
    (run.path / "report.html").write_text("")
    (path, picture) = write_comparison([run, make_run("c")])
    assert path == run.path.parent / "compare_a b_vs_c.html"
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert [link["href"] for link in read(path.read_text()).all("a")] == ["a%20b/report.html"]


def test_settings_that_nobody_has_set_are_no_differences():
    found = {one.key: one.values for one in differences([one.config for one in facts_of("a", "b")])}
    assert found["sac_config.tau"] == ("0.02", "0.02", "0.01")
    assert "sac_config.gamma" not in found


def test_runs_that_never_meet_are_compared_as_far_as_they_can_be():
    early = make_run("early", metrics=metrics_text({"eval/return_mean": (1.0, 2.0)}, (100, 200)), result=None)
    late = make_run("late", metrics=metrics_text({"eval/return_mean": (1.0, 2.0)}, (300, 400)), result=None)
    page = read(comparison(grouped([Facts.gather(early), Facts.gather(late)])))
    assert "early 7 2 2 none 200 (1 of 1)" in page.shown
    # Two seeds of one experiment that never meet have no mean curve, but they are there.
    lone = Experiment("both", (Facts.gather(early), Facts.gather(late)))
    assert "both" in read(comparison([lone])).shown


def test_behaviours_are_compared_one_by_one():
    both = {f"{name}/{metric}": values for name in ("left", "right") for metric, values in CURVE.items()}
    runs = [Facts.gather(make_run(name, metrics=metrics_text(both), result=None)) for name in ("a", "b")]
    page = read(comparison(grouped(runs)))
    for text in ("Learning curves: left", "Outcomes: left", "Learning curves: right", "Outcomes: right"):
        assert text in page.shown


def test_names_and_patterns_choose_runs(task):
    for age, name in enumerate(("base", "base_2", "other")):
        run = make_run(name)
        os.utime(run.config, (1e9 + age, 1e9 + age))
    assert matching_names("task", ("base*",)) == ["base", "base_2"]
    assert matching_names("task", ("other", "base?2", "other", "b*")) == ["other", "base_2", "base"]
    assert matching_names("task", ("none",)) == ["none"]


def test_a_pattern_that_matches_no_run_names_those_there_are(task, capsys):
    for name in ("base", "other"):
        make_run(name)
    assert main(["./task", "--report", "base", "tuned*"]) == 2
    said = capsys.readouterr().err
    assert "no run of task matches 'tuned*'" in said
    assert "runs there, newest first: " in said and "base" in said and "other" in said
    assert "folder name" not in said
