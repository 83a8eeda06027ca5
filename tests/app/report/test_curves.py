"""Curves and their pictures, and summaries of repeated runs."""

import math
import struct

import numpy as np
import pytest

from algorithm.app.report import curves
from algorithm.app.report.curves import Series, common_grid, plot_curve, read_series
from algorithm.app.report.repeats import repeat_rows, repeat_summary
from algorithm.core.errors import StorageError


def series(offset=0.0, steps=(0, 1000, 2000), label="run"):
    steps = np.array(steps, np.float64)
    returns = steps / 10 + offset
    return Series(
        label=label,
        eval_step=steps,
        eval_return=returns,
        eval_ci95=np.ones_like(steps),
        train_step=steps + 5,
        train_return=returns - 3,
    )


def test_series_are_read_from_the_metrics(tmp_path):
    (tmp_path / "m.jsonl").write_text(
        '{"step": 100, "rollout/return_mean": -5.0}\n'
        '{"step": 200, "eval/return_mean": -4.0, "eval/return_ci95": 0.5}\n'
        '{"step": 300, "eval/return_mean": null}\n'
        '{"step": 400, "eval/return_mean": -2.0}\n'
    )
    read = read_series(tmp_path / "m.jsonl", "x")
    assert read.label == "x"
    assert read.eval_step.tolist() == [200, 400]
    assert read.eval_return.tolist() == [-4, -2]
    assert read.eval_ci95[0] == 0.5
    assert math.isnan(read.eval_ci95[1])
    assert (read.train_step.tolist(), read.train_return.tolist()) == ([100], [-5])


def test_a_run_that_was_never_evaluated_gives_empty_series(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"step": 1, "loss/q": 2}\n')
    read = read_series(tmp_path / "m.jsonl", "x")
    assert len(read.eval_step) == len(read.train_step) == 0
    plot_curve(tmp_path / "y.png", [read, read], title=r"no $\oops$ formula")
    steps, returns = common_grid([series(steps=(0, 1)), series(steps=(5, 6))])
    assert steps.shape == (0,) and returns.shape == (2, 0)


def test_runs_meet_on_the_steps_that_all_of_them_cover():
    # 0…2000 and 500…3000: both cover 500…2000; the first is x/10, the second x/10 + 100.
    steps, returns = common_grid([series(), series(100, (500, 1500, 3000))])
    assert steps.tolist() == [500, 1000, 1500, 2000]
    assert returns.tolist() == [[50, 100, 150, 200], [150, 200, 250, 300]]


def test_the_picture_is_a_png_of_readme_size_and_always_the_same(tmp_path):
    for name in ("a.png", "sub/b.png"):
        plot_curve(tmp_path / name, [series(10.0 * k, label=str(k)) for k in range(3)], title="Pendulum-v1")
    data = (tmp_path / "a.png").read_bytes()
    assert struct.unpack(">II", data[16:24]) == (1200, 675)
    assert data == (tmp_path / "sub/b.png").read_bytes()


def test_several_runs_are_drawn_with_their_mean_and_one_entry_for_training(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(curves, "write_picture", lambda path, lines, **_: drawn.extend(lines))
    plot_curve(tmp_path / "x.png", [series(0.0), series(30.0)])
    named = {line.label: line.y.tolist() for line in drawn if line.label}
    mean = "evaluation, mean of 2 runs, Student's 95 % interval"
    assert list(named) == [mean, "training episodes"] and named[mean] == [15, 115, 215]


def test_a_picture_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="picture cannot be written"):
        plot_curve(tmp_path / "file/x.png", [series()])


def result(seed, last, best):
    return {"seed": seed, "last_eval": {"mean": last, "episodes": 10}, "best_eval": {"mean": best}}


def test_repeat_summary_by_hand():
    results = [result(1, -1.0, 0.0), result(2, -2.0, 0.0), result(3, -3.0, 0.0)]
    # s = 1, n = 3: half width 4.3027 / √3
    last = {"values": [-1.0, -2.0, -3.0], "mean": -2.0, "ci95": pytest.approx(2.4841, abs=1e-3)}
    best = {"values": [0.0] * 3, "mean": 0.0, "ci95": 0.0}
    assert repeat_summary(results) == {"runs": 3, "seeds": [1, 2, 3], "last_eval": last, "best_eval": best}
    assert repeat_rows(results) == [
        ("seed 1", "-1.0   best 0.0"),
        ("seed 2", "-2.0   best 0.0"),
        ("seed 3", "-3.0   best 0.0"),
        ("mean, last", "-2.0 ± 2.5 (Student's 95 %) over 3 runs"),
        ("mean, best", "0.0 ± 0.0 (Student's 95 %) over 3 runs"),
    ]


def test_repeated_runs_without_an_evaluation_are_summarised():
    summary = repeat_summary([result(1, -1.0, -1.0), {"seed": 2, "last_eval": None}])
    assert summary["last_eval"] == {"values": [-1.0, None], "mean": -1.0, "ci95": None}
    assert repeat_rows([{"seed": 2}]) == [("seed 2", "not evaluated   best not evaluated")]
