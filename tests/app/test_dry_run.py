"""Cost of a training: the arithmetic with fixed measurements, and the whole of ``--dry_run``."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import psutil
import pytest

from algorithm.app.cli.parsing import parse_args
from algorithm.app.cli.train_flags import task_command
from algorithm.app.preview.cost import Sizes, disk, planned_steps
from algorithm.config.schema import Config
from tests.lib.sessions import run

SIZES = Sizes(
    checkpoint=1000,
    row=30,
    row_each=8,
    replay=40_000,
    capacity=1000,
    held=100,
    process=5_000_000,
    kept="always",
)


def configured(**blocks) -> Config:
    base = {"max_step": 3000, **blocks.pop("base_config", {})}
    return Config.model_validate({"base_config": base, "sac_config": {"save_model_per_step": 800}, **blocks})


@pytest.mark.parametrize(
    ("base", "length", "steps"),
    [
        ({"max_step": 3000}, 40.0, 3000),
        ({"max_step": -1}, 40.0, None),
        ({"max_step": -1, "max_iter": 10, "n_envs": 3}, 40.0, 1200),
        ({"max_step": -1, "max_iter": 10}, None, None),
        ({"max_step": 300, "max_iter": 10}, 40.0, 300),
    ],
)
def test_limits_of_a_run(base, length, steps):
    assert planned_steps(configured(base_config=base), length) == steps


@pytest.mark.parametrize(
    ("kept", "number", "rows", "each"),
    [
        # 3 newest and the best. Two replays and 3 × 800 rows would be 4400, but only 3000 are ever written.
        ({}, 4, 3000, 4),
        # One replay of 1000 rows and what came since the older one, twice 800.
        ({"keep": 2, "best": False}, 2, 2600, 2),
        ({"keep": 1, "best": False, "milestones": [500]}, 2, 2800, 2),
        ({"keep": 9, "best": False}, 4, 3000, 4),
        ({"replay": "last"}, 4, 1800, 1),
        ({"replay": "never"}, 4, 0, 0),
    ],
)
def test_disk_by_hand(kept, number, rows, each):
    """A row is 30 bytes, and 8 more in each checkpoint for the 1000 rows that live."""
    config = configured(checkpoint_config=kept)
    found = disk(config, replace(SIZES, kept=config.checkpoint_config.replay), 3000)
    assert found == (number, 1000 * number, 30 * rows + 8000 * each)


def planned(capsys, *settings: str, code: int = 0) -> dict[str, str]:
    """Last rows of a short ``--dry_run`` of the small task."""
    flags = [word for setting in settings for word in ("-o", setting)]
    assert run("--dry_run", "--seed=1", *flags) == code
    lines = capsys.readouterr().out.partition("result\n")[2].splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line != "next")


@pytest.mark.parametrize(
    "settings",
    [
        ("base_config.n_envs=3", "base_config.workers=1", "base_config.max_step=-1"),
        ("sac_config.seq_encoder=RNN", "sac_config.learn_step=4", "sac_config.burn_in_step=3"),
        ("algorithm=PPO", "ppo_config.num_epoch=1"),
    ],
)
def test_every_way_of_training_is_measured_and_leaves_nothing(task, capsys, tmp_path, settings):
    rows = planned(capsys, *settings)
    if "base_config.max_step=-1" in settings:
        assert rows["time"].startswith("no limit is set") and "disk" not in rows
    else:
        assert rows["time"].partition(": ")[2].startswith("260 steps")
    assert "updates/s" in rows["speed"] and rows["train"].startswith("python main.py ./task")
    assert [path.name for path in tmp_path.iterdir()] == ["task"]
    assert not [one for one in psutil.Process().children() if "spawn_main" in str(one.cmdline())]


def test_a_training_that_is_refused_is_refused_before(task, capsys):
    (task / "taken").mkdir(parents=True)
    for setting in ("replay_config.capacity=5e8", "base_config.name=taken"):
        assert planned(capsys, setting, code=2) == {}


def test_sizes_on_disk_are_those_of_a_training(task, capsys):
    """260 steps of Pendulum, one whole episode and a piece of the next one: 262 rows, two checkpoints."""
    text = planned(capsys)["disk"]
    number, size, replay = re.search(r": (\d) checkpoints of (\d+) KB, replay (\d+) KB", text).groups()
    assert run("-n", "real", "--quiet", "--seed", "1") == 0
    checkpoints = list((task / "real").glob("checkpoints/step_*"))
    assert len(checkpoints) == 2 <= int(number)
    sizes = [sum(file.stat().st_size for file in folder.iterdir()) for folder in checkpoints]
    assert max(sizes) == pytest.approx(1024 * int(size), rel=0.1)
    written = sum(file.stat().st_size for file in (task / "real").glob("replay/*"))
    assert 0.7 * 1024 * int(replay) < written <= 1024 * (int(replay) + 1) + 1000  # the headers of the files


def test_the_next_commands_are_for_the_same_task_with_the_same_settings():
    given = ["a b", "-c", "rnn", "--env_args", "{size: 2}", "--agents", "3", "--algorithm=TD3"]
    given += ["--preset", "lean", "-o", "sac_config.tau=0.1"]
    options = parse_args([*given, "--check"])
    words = shlex.split(task_command(options, "--dry_run"))
    assert words[:2] == ["python", "main.py"]
    assert parse_args(words[2:]) == replace(options, check=False, dry_run=True)
