"""Curves and their pictures."""

import math
import struct

import numpy as np
import pytest

from algorithm.app.report.curves import Series, common_grid, plot_curve, series_of
from algorithm.core.errors import StorageError
from algorithm.store.logs.metrics import read_metrics


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
    read = series_of(read_metrics(tmp_path / "m.jsonl"), "x")
    assert read.label == "x"
    assert read.eval_step.tolist() == [200, 400]
    assert read.eval_return.tolist() == [-4, -2]
    assert read.eval_ci95[0] == 0.5
    assert math.isnan(read.eval_ci95[1])
    assert (read.train_step.tolist(), read.train_return.tolist()) == ([100], [-5])


def test_a_run_that_was_never_evaluated_gives_empty_series(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"step": 1, "loss/q": 2}\n')
    read = series_of(read_metrics(tmp_path / "m.jsonl"), "x")
    assert len(read.eval_step) == len(read.train_step) == 0
    plot_curve(tmp_path / "y.png", read, title=r"no $\oops$ formula")
    steps, returns = common_grid([series(steps=(0, 1)), series(steps=(5, 6))])
    assert steps.shape == (0,) and returns.shape == (2, 0)


def test_runs_meet_on_the_steps_that_all_of_them_cover():
    # 0…2000 and 500…3000: both cover 500…2000; the first is x/10, the second x/10 + 100.
    steps, returns = common_grid([series(), series(100, (500, 1500, 3000))])
    assert steps.tolist() == [500, 1000, 1500, 2000]
    assert returns.tolist() == [[50, 100, 150, 200], [150, 200, 250, 300]]


def test_the_picture_is_a_png_of_readme_size_and_always_the_same(tmp_path):
    for name in ("a.png", "sub/b.png"):
        plot_curve(tmp_path / name, series(), title="Pendulum-v1")
    data = (tmp_path / "a.png").read_bytes()
    assert struct.unpack(">II", data[16:24]) == (1200, 675)
    assert data == (tmp_path / "sub/b.png").read_bytes()


def test_a_picture_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="picture cannot be written"):
        plot_curve(tmp_path / "file/x.png", series())
