"""The comparison of learning with other libraries: the tasks are the same, the runs are read and compared."""

from __future__ import annotations

import importlib
import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from algorithm.config import load_config
from algorithm.config.cli import config_flags, parse_args
from algorithm.config.loader import dump_config
from algorithm.nn.loader import load_networks
from algorithm.spec import ActionSpec, AgentSpec, ObsSpec

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
EQUAL = BENCHMARKS / "equal"
sys.path.insert(0, str(BENCHMARKS))  # its scripts import one another by their plain names
curves, harness, interval, learning, render, runs, tasks, trainings = map(
    importlib.import_module,
    ("curves", "harness", "interval", "learning", "render", "runs", "tasks", "trainings"),
)
PENDULUM = tasks.TASKS["pendulum"]
CURVE = [(step, -1000.0 + step / 10) for step in range(1000, 8001, 1000)]


def make_run(seed: int, final: float, **changes: Any) -> Any:
    """A run on Pendulum that ends with ``final``."""
    values = {"library": "x", "version": "1", "seed": seed, "seconds": 9.0, "parameters": PENDULUM.parameters}
    return runs.Run(**{**values, "curve": (*CURVE[:-1], (8000, final)), **changes})


def write_ours(folder: Path, seed: int, shift: float = 0.0, overrides: Sequence[str] = ()) -> Path:
    """A finished run of this project, as far as the comparison reads it."""
    run = folder / f"run_{seed}"
    model = run / "checkpoints" / "step_000008000" / "model.safetensors"
    model.parent.mkdir(parents=True)
    (run / "config.yaml").write_text(dump_config(load_config(str(EQUAL), "pendulum", overrides, seed=seed)))
    (run / "result.json").write_text(json.dumps({"seed": seed, "seconds": 50.0, "steps": 8000}))
    (run / "manifest.json").write_text(json.dumps({"git": {"commit": "abc", "changed": True}}))
    lines = ["step,loss/q,eval/return_mean", "500,1.0,", *(f"{x},,{y + shift}" for x, y in CURVE)]
    (run / "metrics.csv").write_text("\n".join(lines) + "\n")
    tensors = {"model.q.weight": PENDULUM.parameters - 2, "model.policy.bias": 2, "model.target_q.weight": 7}
    save_file({name: np.zeros(n, np.float32) for name, n in tensors.items()}, model)
    return run


def write_theirs(folder: Path, seed: int) -> Path:
    """What a worker printed, PyBullet's lines around it."""
    curve = [(step, [value - 1, value + 1]) for step, value in CURVE]
    answer = {"library": "stable-baselines3", "version": "2.9.2", "task": "pendulum", "seed": seed}
    answer |= {"seconds": 60.0, "parameters": PENDULUM.parameters, "curve": curve}
    file = folder / f"theirs_{seed}.txt"
    file.write_text(f"argv[0]=\n{json.dumps(answer)}\nnumActiveThreads = 0\n")
    return file


# ---- the same task on both sides


@pytest.mark.parametrize("name", tasks.TASKS)
def test_both_sides_have_the_same_task(name: str) -> None:
    assert runs.differences(load_config(str(EQUAL), name).config, tasks.TASKS[name]) == []


@pytest.mark.parametrize(
    "override",
    ["sac_config.tau=0.01", "sac_config.n_step=2", "base_config.n_envs=2", "replay_config.capacity=5000"],
)
def test_another_task_is_noticed(override: str) -> None:
    config = load_config(str(EQUAL), "pendulum", [override]).config
    (found,) = runs.differences(config, PENDULUM)
    assert found.startswith(override.partition("=")[0])


def test_every_section_is_a_task() -> None:
    sections = yaml.safe_load((EQUAL / "config.yaml").read_text())
    assert set(sections) - {"default"} == set(tasks.TASKS)


@pytest.mark.parametrize("name", tasks.TASKS)
def test_sizes_are_those_of_the_environment_and_the_networks(name: str) -> None:
    """Without targets, two critics and one policy; the same number that the workers report."""
    task = tasks.TASKS[name]
    env = gym.make(task.env_id)
    assert env.observation_space.shape == (task.obs_size,)
    assert env.action_space.shape == (task.action_size,)
    env.close()
    spec = AgentSpec(ObsSpec(("obs",), ((task.obs_size,),), ("float32",)), ActionSpec((), task.action_size))
    networks = load_networks(spec, EQUAL / "nn.py")
    critic, policy = (
        sum(p.numel() for p in net.parameters()) for net in (networks.make_q(), networks.policy)
    )
    assert 2 * critic + policy == task.parameters


# ---- the interval


def test_the_interval_of_two_values() -> None:
    """Means of two draws from {0, 1} are 0, 0.5, 1 with chances 1/4, 1/2, 1/4: both ends are in the 95 %."""
    found = interval.bootstrap_difference([0.0, 1.0], [0.0, 0.0])
    assert (found.mean, found.low, found.high) == (0.5, 0.0, 1.0)


def test_each_side_is_resampled_by_itself() -> None:
    """In pairs, equal sides would have no difference at all; alone, −1 and 1 have a chance of 1/16 each."""
    found = interval.bootstrap_difference([0.0, 1.0], [0.0, 1.0])
    assert (found.mean, found.low, found.high) == (0.0, -1.0, 1.0)


def test_the_interval_of_many_values_is_the_normal_one() -> None:
    """Standard error of a mean of 400 draws from {0, 1}: 0.5/√400 = 0.025; of a difference √2 as much."""
    values = [0.0, 1.0] * 200
    found = interval.bootstrap_difference([x + 3 for x in values], values)
    half = 1.96 * 0.025 * np.sqrt(2)
    np.testing.assert_allclose([found.low, found.high], [3 - half, 3 + half], atol=0.004)
    assert found == interval.bootstrap_difference([x + 3 for x in values], values)


@pytest.mark.parametrize(
    ("ours", "verdict"), [([5.0, 6.0], "higher"), ([-6.0, -5.0], "lower"), ([-1.0, 1.0], "not told apart")]
)
def test_the_verdict(ours: list[float], verdict: str) -> None:
    assert interval.bootstrap_difference(ours, [0.0, 0.0]).verdict == verdict


def test_no_interval_from_one_run() -> None:
    with pytest.raises(ValueError, match="there are 3 and 1"):
        interval.bootstrap_difference([1.0, 2.0, 3.0], [1.0])


# ---- runs


def test_the_area_is_the_mean_height() -> None:
    """From 0 to 10 in 10 steps, then 20 steps at 10: (50 + 200) / 30."""
    assert make_run(1, 0.0, curve=((10, 0.0), (20, 10.0), (40, 10.0))).area() == pytest.approx(25 / 3)


def test_a_run_of_ours_is_read(tmp_path: Path) -> None:
    run = runs.read_ours(write_ours(tmp_path, 3))
    assert (run.seed, run.seconds, run.version, run.final) == (3, 50.0, "abc+", -200.0)
    assert run.parameters == PENDULUM.parameters  # targets do not count
    assert list(run.curve) == CURVE  # the row without an evaluation is not a point


def test_a_run_of_theirs_is_read(tmp_path: Path) -> None:
    run = runs.read_theirs(write_theirs(tmp_path, 2))
    assert (run.library, run.seed, run.seconds) == ("stable-baselines3", 2, 60.0)
    assert list(run.curve) == CURVE  # of the episodes of an evaluation, their mean


def test_a_run_that_is_not_finished_is_an_error(tmp_path: Path) -> None:
    run = write_ours(tmp_path, 1)
    (run / "result.json").unlink()
    with pytest.raises(harness.WorkerError, match="no finished run"):
        runs.read_ours(run)


# ---- the comparison


def test_final_returns_and_areas_are_compared() -> None:
    sides = {
        "ours": [make_run(1, -100.0), make_run(2, -120.0)],
        "peer": [make_run(1, -200.0), make_run(2, -200.0)],
    }
    content = learning.compare(sides, PENDULUM)
    assert content["means"]["ours"]["final"] == -110.0
    found = content["comparisons"]["ours"]
    assert found["final"] == {"difference": 90.0, "ci95": [80.0, 100.0], "verdict": "higher"}
    assert found["area"]["difference"] == pytest.approx(
        90 * 500 / 7000
    )  # half of the last 1000 of 7000 steps
    assert set(content["comparisons"]) == {"ours"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "a seed stands twice"),
        ({"parameters": 7}, "trained 7 weights, not 201988"),
        (
            {"curve": ((1000, 0.0), (7000, 0.0))},
            "seed 2: evaluated last at step 7000, not 8000",
        ),
    ],
)
def test_runs_that_differ_are_not_compared(changes: dict[str, Any], message: str) -> None:
    odd = make_run(**{"seed": 2, "final": 0.0, **changes})
    with pytest.raises(harness.WorkerError, match=message):
        learning.compare(
            {"ours": [make_run(1, 0.0), odd], "peer": [make_run(1, 0.0), make_run(2, 0.0)]}, PENDULUM
        )


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: object) -> None:
    """Run ``learning.py`` on Pendulum, its results and pictures in a folder."""
    options = ["--tasks", "pendulum", f"--results={folder}", f"--images={folder}"]
    monkeypatch.setattr(sys, "argv", ["learning.py", *options, *map(str, arguments)])
    learning.main()


def test_finished_runs_become_figures_picture_and_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = [write_ours(tmp_path, seed, shift=10.0 * seed) for seed in (1, 2)]
    other = ["sac_config.n_step=3", "sac_config.use_priority=true"]
    preset = [write_ours(tmp_path / "preset", seed, shift=50.0, overrides=other) for seed in (1, 2)]
    theirs = [write_theirs(tmp_path, seed) for seed in (1, 2)]
    third = ["--preset=gym/pendulum", "--preset-runs", *preset]
    call(monkeypatch, tmp_path, "--ours", *ours, "--theirs", *theirs, *third)
    assert (tmp_path / "learning_pendulum.png").read_bytes().startswith(b"\x89PNG")
    lines = render.learning(tmp_path).splitlines()
    assert lines[2] == (
        "| Pendulum-v1 | this project | 2 | -185.0 | +15.0 [+10.0, +20.0], higher "
        "| -535.0 | +15.0 [+10.0, +20.0], higher |"
    )
    assert lines[3] == "| Pendulum-v1 | Stable-Baselines3 | 2 | -200.0 | | -550.0 | |"
    assert lines[4].startswith("| Pendulum-v1 | preset gym/pendulum | 2 | -150.0 | +50.0 [")
    assert lines[-1].endswith("(images/learning_pendulum.png)")


def test_a_run_of_another_task_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [write_ours(tmp_path, seed, overrides=["sac_config.gamma=0.9"]) for seed in (1, 2)]
    theirs = [write_theirs(tmp_path, seed) for seed in (1, 2)]
    with pytest.raises(SystemExit, match=r"another task than pendulum: sac_config.gamma: 0.9, not 0.99"):
        call(monkeypatch, tmp_path, "--ours", *ours, "--theirs", *theirs)


@pytest.mark.parametrize(
    "arguments", [["--ours", "a"], ["--seeds=1"], ["--preset=x", "--ours", "a", "--theirs", "b"]]
)
def test_half_a_command_is_refused(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as stop:
        call(monkeypatch, tmp_path, *arguments)
    assert stop.value.code == 2


def test_the_picture_says_what_it_shows() -> None:
    figure = curves.draw(
        {"one": [make_run(1, -100.0), make_run(2, -300.0)], "two": [make_run(1, 0.0)]}, title="T"
    )
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_title(loc="left")) == ("environment steps", "T")
    assert "return" in axes.get_ylabel()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "one, mean of 2 seeds",
        "two, mean of 1 seed",
    ]
    assert [float(line.get_ydata()[-1]) for line in axes.lines] == [-100.0, -300.0, -200.0, 0.0, 0.0]


def test_runs_of_a_side_need_the_same_steps() -> None:
    with pytest.raises(harness.WorkerError, match="one: its runs were evaluated at different steps"):
        curves.draw({"one": [make_run(1, 0.0), make_run(2, 0.0, curve=((8000, 0.0),))]}, title="")


# ---- the trainings


def options_of(**changes: Any) -> Namespace:
    """The command line of ``learning.py``."""
    return Namespace(**{"sb3_python": Path(sys.executable), "preset": None, "jobs": 2, "seeds": 2} | changes)


def test_the_command_of_ours_trains_the_task(tmp_path: Path) -> None:
    ours, theirs, preset = trainings.plan("pendulum", 7, tmp_path, options_of(preset="gym/pendulum"))
    options = parse_args(ours.command[2:])
    loaded = load_config(options.env, options.config, options.overrides, config_flags(options), options.seed)
    assert runs.differences(loaded.config, PENDULUM) == []
    assert loaded.seed == 7
    assert theirs.command[1:] == [str(BENCHMARKS / "learning_sb3.py"), "--task=pendulum", "--seed=7"]
    options = parse_args(preset.command[2:])
    config = load_config(options.env, None, options.overrides).config
    assert (config.base_config.max_step, config.eval_config.per_step) == (8000, 1000)


def play(code: str, side: str, seed: int, folder: Path) -> Any:
    """A training that is a line of Python."""
    command = [sys.executable, "-c", code]
    return trainings.Training(side, command, folder / f"{side}_{seed}.txt", lambda: make_run(seed, 0.0))


def test_every_seed_of_every_side_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainings, "ROOT", tmp_path)
    plan = lambda _, seed, folder, __: [play("print(1)", side, seed, folder) for side in ("ours", "peer")]  # noqa: E731
    monkeypatch.setattr(trainings, "plan", plan)
    sides = trainings.train_sides("pendulum", options_of())
    assert {side: [run.seed for run in found] for side, found in sides.items()} == {
        "ours": [1, 2],
        "peer": [1, 2],
    }
    assert len(list(tmp_path.glob("models/benchmarks/pendulum_*/peer_2.txt"))) == 1


def test_a_failed_training_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainings, "ROOT", tmp_path)
    monkeypatch.setattr(trainings, "plan", lambda *given: [play("exit(4)", "ours", given[1], given[2])])
    with pytest.raises(harness.WorkerError, match="ended with exit code 4"):
        trainings.train_sides("pendulum", options_of(jobs=1, seeds=9))
    assert len(list(tmp_path.glob("models/benchmarks/pendulum_*/*.txt"))) < 9
