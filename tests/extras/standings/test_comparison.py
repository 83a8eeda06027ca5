"""Experiments beside each other: which runs belong together, and what is said of them."""

from pathlib import Path

import numpy as np
import pytest

from algorithm.app.report.curves import Series
from algorithm.app.report.facts import Facts
from algorithm.extras.standings.comparison import comparison, file_stem, group_lines
from algorithm.extras.standings.experiments import Experiment, grouped
from algorithm.run.evaluation.statistics import mean_interval
from main import main
from tests.lib.made_runs import CURVE, make_run, metrics_text
from tests.lib.pages import read

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


def test_a_comparison_has_the_mean_of_each_experiment():
    lines = group_lines({"slow": [curve([0, 100]), curve([20, 120])], "none": [], "fast": [curve([9, 8])]})
    assert [line.style for line in lines] == ["run", "run", "line", "line"]
    slow, fast = lines[2:]
    assert (slow.label, slow.tone, slow.y.tolist()) == ("slow, 2 runs", 0, [10, 110])
    assert (fast.label, fast.tone, fast.y.tolist()) == ("fast, 1 run", 2, [9, 8])
    half = mean_interval([0.0, 20.0]).half_width  # as in the terminal
    np.testing.assert_allclose(slow.band, [slow.y - half, slow.y + half])
    assert np.isnan(fast.band).all()  # one run alone has no interval


def test_runs_of_repeat_are_one_experiment():
    names = ("base", "other", "base_2", "base_10", "base_1", "lone_2", "base_02")
    runs = [Facts.gather(make_run(name)) for name in names]
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
        f"{folder}/compare_seed[1].html",
    ]
    shown = read(Path(folder, "compare_base.html").read_text()).shown
    assert "All runs have the same configuration except for their seeds." in shown
    assert main(["./task", "--report", "rum"]) == 6
    assert "no run 'rum'" in capsys.readouterr().err


def test_the_members_of_a_population_are_compared(capsys):
    for member in (1, 2):
        make_run(f"pop_{member}", overrides=(f"sac_config.tau={0.01 * member}",))
    folder = Path("models/task/pop")
    folder.mkdir()
    (folder / "population.yaml").touch()
    make_run("pop_long")  # a run of its own, whose name begins alike
    assert main(["./task", "--report", "pop"]) == 0
    assert "compare_pop_1_vs_pop_2.html" in capsys.readouterr().out


def test_file_names_are_short_and_differ():
    assert file_stem(["a", "b"]) == "compare_a_vs_b"
    long = [f"experiment_{k}" for k in range(50)]
    assert len(file_stem(long)) < 120 and file_stem(long) != file_stem([*long, "one more"])


def test_a_comparison_by_hand():
    nan = float("nan")
    runs = [
        make_run("base", metrics=evaluated(nan, 0, nan, 10), result=None),
        make_run("base_2", seed=8, metrics=evaluated(nan, 2, nan, 14), result=None),
        make_run("new", overrides=("sac_config.tau=0.5",), metrics=evaluated(nan, 1, nan, 40), result=None),
    ]
    (runs[2].path / "report.html").touch()
    page = read(comparison(grouped([Facts.gather(run) for run in runs])))
    assert [link["href"] for link in page.all("a")] == ["new/report.html"]
    for text in (
        "task: base against new 2 experiments, 3 runs",
        # 12 ± t(1) · s/√2 with t = 12.706 and s = 2.828
        "base 7, 8 12.0 ± 25.4 12.0 ± 25.4",
        "new 7 40 40",
        "sac_config.tau 0.02 0.5 0.01",
        "python main.py ./task --report base base_2 new",
        "base_2 8 ended without a result 400 14.0 ± 0.5",
    ):
        assert text in page.shown, text
    assert "sac_config.batch_size" not in page.shown  # the same in all of them
    assert "sac_config.seed" not in page.shown


def test_runs_that_never_meet_are_compared_as_far_as_they_can_be():
    means = {"eval/return_mean": (1.0, 2.0)}
    early = Facts.gather(make_run("early", metrics=metrics_text(means, (100, 200)), result=None))
    late = Facts.gather(make_run("late", metrics=metrics_text(means, (300, 400)), result=None))
    never = Facts.gather(make_run("never", metrics=None, result=None))
    shown = read(comparison(grouped([early, late, never]))).shown
    assert "early 7 2 2" in shown and "never: metrics.jsonl is missing" in shown
    # Two seeds of one experiment that never meet have no mean curve, but they are there.
    assert "both" in read(comparison([Experiment("both", (early, late))])).shown


def test_behaviours_are_compared_one_by_one():
    both = {f"{name}/{metric}": values for name in ("left", "right") for metric, values in CURVE.items()}
    page = read(comparison(grouped([Facts.gather(make_run(metrics=metrics_text(both), result=None))])))
    for text in ("Learning curves: left", "Outcomes: left", "Learning curves: right", "Outcomes: right"):
        assert text in page.shown
