"""The shipped tasks and the page about them: each section trains, and what is written about them is so."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import pytest
import yaml

from algorithm.app.cli.ds import parse_distributed
from algorithm.app.cli.parsing import parse_args
from algorithm.app.cli.train import TrainOptions
from algorithm.config import Config, load_config
from algorithm.core.spec import ActionSpec, ObsSpec
from algorithm.env.registry import make_vec_env
from algorithm.extras.unity.testing import make_build
from algorithm.run.experience.requests import env_request
from main import main
from tests.house.test_docs import ROOT, blocks_of, commands_of

ENVS = ROOT / "envs"
TASKS_PAGE = ROOT / "docs" / "tasks.md"
OWN_PAGE = ROOT / "docs" / "own_environment.md"
LABELS = [str(file.parent.relative_to(ENVS)) for file in sorted(ENVS.rglob("config.yaml"))]
SECTIONS = [
    (label, section)
    for label in LABELS
    for section in yaml.safe_load((ENVS / label / "config.yaml").read_text("utf-8"))
]


@pytest.mark.parametrize("algorithm", ["PPO", "A2C", "TD3"])
def test_each_task_can_be_tried_with_another_algorithm(algorithm):
    """By one flag, whatever its default section sets for the algorithm that it has been written for."""
    for label in LABELS:
        assert load_config(label, flags={"algorithm": algorithm}).config.algorithm == algorithm, label


SMALL = (
    "base_config.max_step_each_iter=40",
    "eval_config.episodes=1",
    "sac_config.write_summary_per_step=200",
    "eval_config.per_step=200",
)
OFF_POLICY = (
    "sac_config.start_step=100",
    "sac_config.batch_size=16",
    "sac_config.replay_ratio=0.05",
    "replay_config.capacity=1000",
)
SMALL_BY_FAMILY = {
    "SAC": OFF_POLICY,
    "TD3": OFF_POLICY,
    "PPO": ("ppo_config.rollout_step=4", "ppo_config.num_minibatch=2"),
    "A2C": ("a2c_config.rollout_step=2",),
    "A3C": ("a3c_config.rollout_step=4",),
    "ACKTR": ("acktr_config.rollout_step=1",),
    "ACER": ("acer_config.rollout_step=4", "acer_config.start_step=50"),
}
"""Little enough to learn in a moment, and nothing that a section is about."""
STEPS = 200
TRAINED = ("toy/recall", "gym/pendulum", "bullet/hopper", "popgym/repeat_previous", "unity/3dball")
"""Tasks, one of each suite, whose default section trains in every run of the tests; others with -m slow."""


def shrunk(label: str = "", section: str | None = None, overrides: Sequence[str] = ()) -> list[str]:
    """Flags that make a training a matter of a second; of SAC without a task."""
    config = load_config(label, section, overrides, seed=1).config if label else Config()
    small = [*SMALL, *SMALL_BY_FAMILY.get(config.algorithm, ())]
    if config.demonstrations.offline:
        small = [text for text in small if "start_step" not in text]
    return [f"--max_step={STEPS}", "--device=cpu", *(word for text in small for word in ("-o", text))]


def build_flags(label: str, folder: Path) -> list[str]:
    """Flags that set a scripted player in place of the build that a Unity task needs."""
    suite, _, task = label.partition("/")
    if suite != "unity":
        return []
    build = make_build(folder, "--task", task, "--max-step=200")
    return ["-o", f"base_config.unity_args.build_path.{sys.platform}={build}"]


@pytest.mark.parametrize(
    ("label", "section"),
    [
        pytest.param(*one, marks=() if one in [(label, "default") for label in TRAINED] else pytest.mark.slow)
        for one in SECTIONS
    ],
)
def test_a_section_trains(
    label: str,
    section: str,
    cwd: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From the command line to the page about the run, with its own networks, wrappers and workers."""
    flags = ["-c", section, "-n", "run", "--seed=1", "--quiet"]
    flags += [*shrunk(label, section), *build_flags(label, cwd)]
    told = main([label, *flags]), capsys.readouterr()
    assert told[0] == 0, told[1]
    run = cwd / "models" / label / "run"
    result = json.loads((run / "result.json").read_text())
    assert result["steps"] >= STEPS and result["updates"] >= 4 and result["last_eval"]["episodes"] >= 1
    assert not any(result["faults"].values())
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {key: value for row in rows for key, value in row.items() if "loss/" in key}  # of its behaviour
    assert any(key.endswith(("loss/q", "loss/value")) for key in losses)
    assert all(map(math.isfinite, losses.values()))


@pytest.mark.parametrize(("label", "section"), SECTIONS)
def test_a_section_wastes_no_data_and_ends(label: str, section: str) -> None:
    """Unfinished episodes of the other copies go on, and a run has an end and an evaluation on its way."""
    config = load_config(label, section, seed=1, require_runnable=True).config
    base = config.base_config
    assert base.reset_on_iteration is False
    assert config.demonstrations.offline or 0 < config.sac_config.start_step < base.max_step
    assert 0 < config.eval_config.per_step < base.max_step
    if config.algorithm == "SAC":
        assert config.replay_config.capacity >= min(base.max_step, 300_000), "it would forget early"


@pytest.mark.parametrize(
    "preset",
    [
        "cross",
        "flash64",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("lean", "tqc", "droq", "simba", "flash", "lanes")
        ),
    ],
)
def test_a_preset_of_learners_trains_resumes_and_plays(
    preset: str, cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task of which nothing is known but its name; the run knows by itself what the preset has set."""
    small = shrunk() + ["-o=n_envs=8", "-o=replay_ratio=0.25"] * (preset == "lanes")
    assert main(["Pendulum-v1", "--preset", preset, *small, "--seed=1", "-n=a"]) == 0, capsys.readouterr()
    assert re.search(rf"preset +{preset}\n", capsys.readouterr().out)
    assert main(["Pendulum-v1", "-n=a", "--resume", "--max_step=300"]) == 0, capsys.readouterr()
    assert main(["Pendulum-v1", "-n=a", "--eval=1"]) == 0, capsys.readouterr()
    (run,) = (cwd / "models").rglob("metrics.jsonl")
    rows = [json.loads(line) for line in run.read_text().splitlines()]
    losses = [value for row in rows for key, value in row.items() if key.startswith("loss/")]
    assert losses and all(map(math.isfinite, losses))


@pytest.mark.parametrize(
    ("env", "section"),
    [
        ("Pendulum-v1", "continuous"),
        ("CartPole-v1", "discrete"),
        ("algorithm.env.toys:ToyTwoCameras-v0", "images"),
        ("algorithm.env.toys:ToyCatch-v0", "images_discrete"),
    ],
)
def test_a_bare_task_trains_with_the_section_of_its_spaces(
    env: str,
    section: str,
    cwd: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([env, *shrunk(), "--seed=1", "-n=a"]) == 0, capsys.readouterr()
    assert re.search(rf"section +{section}, since", capsys.readouterr().out)
    assert main([env, "-n=a", "--resume", "--max_step=250"]) == 0, capsys.readouterr()
    assert main([env, "-n=a", "--eval=1"]) == 0, capsys.readouterr()


def commands_in(page: Path) -> list[TrainOptions]:
    """Return the options of every ``asac …`` and ``asac-ds …`` in the shell blocks of a page."""
    blocks = [block for block in blocks_of(page, page.read_text("utf-8")) if block.language == "sh"]
    commands = [words for block in blocks for words in commands_of(block.text)]
    one = [parse_args(words[1:]) for words in commands if words[0] == "asac"]
    many = [parse_distributed(words[1:]) for words in commands if words[0] == "asac-ds"]
    return one + [options.train for options in many]


@pytest.mark.parametrize("label", LABELS)
def test_a_readme_is_about_its_own_task_and_names_every_section(label: str) -> None:
    commands = commands_in(ENVS / label / "README.md")
    assert {options.env for options in commands} == {label}
    sections = {section for other, section in SECTIONS if other == label}
    assert {options.config or "default" for options in commands} == sections


def rows_of(page: Path) -> dict[str, list[str]]:
    """First cell -> the other cells, of the tables whose first cell is a path below ``envs/``."""
    rows = re.findall(r"^\| \[`([\w/]+)`\]\([^)]+\) \|(.+)\|$", page.read_text("utf-8"), re.M)
    return {label: [cell.strip().strip("`") for cell in cells.split("|")] for label, cells in rows}


def observation_cell(spec: ObsSpec) -> str:
    """``3``, ``4 × 84 × 84``, ``1 of 5``; several with a plus."""
    cells = []
    for shape, categories in zip(spec.shapes, spec.categories, strict=True):
        numbers = " × ".join(map(str, shape))
        cells.append(" + ".join(f"1 of {n}" for n in categories) if categories else numbers)
    return " + ".join(cells)


def action_cell(spec: ActionSpec) -> str:
    """``1 of 4`` for each branch, then the number of continuous actions."""
    return " + ".join([f"1 of {n}" for n in spec.branches] + [str(spec.continuous)] * bool(spec.continuous))


@pytest.mark.parametrize("label", LABELS)
def test_the_table_says_what_a_task_is(label: str, tmp_path: Path) -> None:
    """Name, observation, action and steps; the published figure is in its README, an optimum in its class."""
    assert set(rows_of(TASKS_PAGE)) == set(LABELS)
    overrides = parse_args([label, *build_flags(label, tmp_path)]).overrides
    loaded = load_config(label, overrides=overrides, seed=1)
    config = loaded.config
    if label.startswith("robots/"):
        pytest.importorskip("gym_hil")
    env = make_vec_env(replace(env_request(loaded, "evaluate"), joint=False))
    env.close()
    (spec,) = env.specs.values()
    name, observation, action, steps, published = rows_of(TASKS_PAGE)[label]
    assert name == config.base_config.env_name.rpartition(":")[2]
    assert (observation, action) == (observation_cell(spec.obs), action_cell(spec.action))
    assert int(steps.replace(",", "")) == config.base_config.max_step
    assert published.split()[0] in (ENVS / label / "README.md").read_text("utf-8")
    if label.startswith("toy/"):
        optimum = f"{gym.make(config.base_config.env_name).unwrapped.optimum:g}".replace("-", "−")
        assert published == f"{optimum} (optimum)"


@pytest.mark.slow
def test_the_task_of_the_page_trains_as_it_is_written(
    cwd: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worked example: a folder with an environment, a configuration, and the command below them."""
    blocks = blocks_of(OWN_PAGE, OWN_PAGE.read_text("utf-8"))
    python, configuration = (
        next(block.text for block in blocks if block.language == language) for language in ("python", "yaml")
    )
    command, again = (options for options in commands_in(OWN_PAGE) if options.env.startswith("own/"))
    folder = cwd / "envs" / command.env
    folder.mkdir(parents=True)
    (folder / "walk.py").write_text(python)
    (folder / "config.yaml").write_text(configuration)
    monkeypatch.syspath_prepend(str(cwd))  # which also takes away again what main.py adds
    assert main([command.env, "--seed=1", "--device=cpu", "--quiet"]) == 0, capsys.readouterr().err
    (result,) = (cwd / "models" / command.env).glob("*/result.json")
    assert again.run and again.max_iter == 10
    assert main([command.env, "--run", "--disable_sample", "--max_iter=10", "--quiet"]) == 0
    solved = float(re.search(r"better than −(\d+)", OWN_PAGE.read_text("utf-8"))[1])
    assert -solved < json.loads(result.read_text())["last_eval"]["mean"] < 1
