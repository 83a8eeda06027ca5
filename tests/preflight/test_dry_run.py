"""What a training will cost: the arithmetic with fixed measurements, and the whole of ``--dry_run`` once."""

from __future__ import annotations

import math
from datetime import datetime

import psutil
import pytest

from algorithm.config.cli import parse_args
from algorithm.config.loader import load_config
from algorithm.config.schema import Config
from algorithm.errors import UsageError
from algorithm.preflight import dry_run as shown
from algorithm.preflight.dry_run import dry_run
from algorithm.preflight.plan import (
    FILE_BYTES,
    OTHER_BYTES,
    SUMMARY_BYTES,
    TENSOR_BYTES,
    Disk,
    Duration,
    Measured,
    Memory,
    Plan,
    Sizes,
    disk,
    duration,
    make_plan,
    memory,
    num_times,
    planned_steps,
)
from tests.run.sessions import run

MEASURED = Measured(
    warm_up_step=0.001,
    step=0.002,
    update=0.01,
    evaluation_step=0.004,
    updates_per_step=0.5,
    length=40.0,
)
SIZES = Sizes(checkpoint=1000, row=30, row_each=8, replay=40_000, capacity=1000, process=5_000_000, held=100)
PLAN = Plan(
    steps=3000,
    updates=1250,
    evaluations=3,
    evaluation_steps=(1200, 6000),
    checkpoints=4,
    summaries=6,
    rows=3076,
)


def configured(**blocks) -> Config:
    base = {"max_step": 3000, **blocks.pop("base_config", {})}
    sac = {
        "start_step": 500,
        "write_summary_per_step": 500,
        "save_model_per_step": 800,
        **blocks.pop("sac_config", {}),
    }
    return Config.model_validate(
        {"base_config": base, "sac_config": sac, "eval_config": {"per_step": 1000}, **blocks}
    )


@pytest.mark.parametrize(
    ("steps", "interval", "times"), [(3000, 1000, 3), (3001, 1000, 4), (999, 1000, 1), (5000, -1, 1)]
)
def test_what_is_due_is_also_done_at_the_end(steps, interval, times):
    assert num_times(steps, interval) == times


@pytest.mark.parametrize(
    ("base", "length", "steps"),
    [
        ({"max_step": 3000}, 40.0, 3000),
        ({"max_step": -1}, 40.0, None),
        ({"max_step": -1, "max_iter": 10}, 40.0, 400),
        ({"max_step": -1, "max_iter": 10, "n_envs": 3}, 40.0, 1200),
        ({"max_step": -1, "max_iter": 10}, None, None),
        ({"max_step": 300, "max_iter": 10}, 40.0, 300),
    ],
)
def test_what_limits_a_run(base, length, steps):
    assert planned_steps(configured(base_config=base), length) == steps


def test_a_plan_by_hand():
    """2500 steps after the warm-up owe 1250 updates; 3 × 10 episodes of 40 steps, at most of 200; each of the
    75 training episodes leaves one row more, and that which is open another.
    """
    assert make_plan(configured(), 3000, MEASURED, 200) == PLAN


def test_episodes_last_as_long_as_they_may_if_none_has_ended():
    measured = Measured(**{**vars(MEASURED), "length": None})
    assert make_plan(configured(), 3000, measured, 200).evaluation_steps == (6000, 6000)
    cut = configured(base_config={"max_step_each_iter": 50})
    assert make_plan(cut, 3000, measured, 200).evaluation_steps == (1500, 1500)
    assert make_plan(configured(), 3000, measured, None).evaluation_steps == (0, 0)


def test_a_duration_by_hand():
    """500 × 1 ms + 2500 × 2 ms; 1250 × 10 ms; 1200 to 6000 × 4 ms."""
    needed = duration(PLAN, MEASURED, start_step=500)
    assert needed == Duration(pytest.approx(5.5), pytest.approx(12.5), pytest.approx((4.8, 24.0)))
    assert needed.total == pytest.approx((22.8, 42.0))


def test_without_updates_their_time_does_not_matter():
    plan = Plan(**{**vars(PLAN), "updates": 0})
    measured = Measured(**{**vars(MEASURED), "update": math.nan})
    assert duration(plan, measured, start_step=500).updating == 0.0


@pytest.mark.parametrize(
    ("kept", "number", "rows", "each"),
    [
        # 3 newest and the best. Two replays and 3 × 800 rows would be 4400, but only 3076 are ever written.
        ({}, 4, 3076, 4),
        # One replay of 1000 rows and what came since the older one, twice 800.
        ({"keep": 2, "best": False}, 2, 2600, 2),
        ({"keep": 1, "best": False}, 1, 1800, 1),
        ({"keep": 1, "best": False, "milestones": [500]}, 2, 2800, 2),
        ({"keep": 9, "best": False}, 4, 3076, 4),
        ({"replay": "last"}, 4, 1800, 1),
        ({"replay": "never"}, 4, 0, 0),
    ],
)
def test_disk_by_hand(kept, number, rows, each):
    """A row is 30 bytes, and 8 more in each checkpoint for the 1000 rows that live."""
    found = disk(PLAN, configured(checkpoint_config=kept), SIZES)
    logs = 6 * SUMMARY_BYTES + OTHER_BYTES
    assert found == Disk(checkpoints=1000 * number, kept=number, replay=30 * rows + 8000 * each, logs=logs)
    assert found.total == 1000 * number + 30 * rows + 8000 * each + logs


def test_memory_by_hand():
    """900 of 1000 rows are still to come; saving takes twice a checkpoint."""
    full = Memory(now=5_000_000, replay=36_000, saving=2000)
    assert memory(PLAN, SIZES) == memory(None, SIZES) == full
    assert (full.more, full.peak) == (38_000, 5_038_000)
    short = Plan(**{**vars(PLAN), "rows": 350})
    assert memory(short, SIZES).replay == 10_000
    assert memory(Plan(**{**vars(PLAN), "rows": 50}), SIZES).replay == 0


def test_the_time_is_told_with_what_it_goes_into():
    noon = datetime(2030, 1, 1, 12, 0)
    rows = shown.time_rows(PLAN, Duration(60.0, 120.0, (10.0, 100.0)), configured(), noon)
    assert rows == [
        (
            "time",
            "3:10 to 4:40: 3,000 steps 1:00, 1,250 updates 2:00, 3 evaluations of 10 episodes 0:10 to 1:40; "
            "saving not counted",
        ),
        ("finished", "about 12:04 if it starts now"),
    ]
    late = shown.time_rows(PLAN, Duration(60.0, 86400.0, (10.0, 10.0)), configured(), noon)
    assert late[0][1].startswith("24:01:10: 3,000 steps")
    assert late[1][1] == "about Wed 02 Jan, 12:01 if it starts now"


def planned(capsys, *flags: str) -> dict[str, str]:
    """Last rows of a short ``--dry_run`` of the small task."""
    options = parse_args(["./task", "--device=cpu", "--dry_run", *flags])
    loaded = load_config("./task", options.config, options.overrides, seed=1, require_runnable=True)
    assert dry_run(options, loaded, seconds=0.05) == 0
    lines = capsys.readouterr().out.split("result\n")[1].splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line != "next")


def test_nothing_is_written(task, capsys, tmp_path):
    rows = planned(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["task"]
    assert "260 steps" in rows["time"] and "40 updates" in rows["time"]
    assert "2 evaluations of 2 episodes" in rows["time"]
    assert "updates/s" in rows["speed"]
    assert rows["train"] == "python main.py ./task"


@pytest.mark.parametrize(
    "flags",
    [
        ("-o", "sac_config.use_replay_buffer=false"),
        ("-o", "base_config.n_envs=3", "-o", "base_config.workers=1"),
        (
            "-o",
            "sac_config.seq_encoder=RNN",
            "-o",
            "sac_config.learn_step=4",
            "-o",
            "sac_config.burn_in_step=3",
        ),
    ],
)
def test_every_way_of_training_can_be_measured(task, capsys, flags):
    rows = planned(capsys, *flags)
    assert "updates/s" in rows["speed"]
    children = psutil.Process().children()
    assert not [child for child in children if "spawn_main" in str(child.cmdline())]


def test_without_a_limit_there_is_no_end(task, capsys):
    rows = planned(capsys, "-o", "base_config.max_step=-1")
    assert rows["time"].startswith("no limit is set")
    assert "disk" not in rows
    assert "1,000 rows of replay" in rows["memory"]


def test_what_a_training_refuses_is_refused(task, capsys, monkeypatch):
    with pytest.raises(UsageError, match="a replay of 500,000,000 rows needs"):
        planned(capsys, "-o", "replay_config.capacity=5e8")
    (task / "taken").mkdir(parents=True)
    with pytest.raises(UsageError, match="exists already"):
        planned(capsys, "-o", "base_config.name=taken")


def test_sizes_on_disk_are_those_of_a_training(task, capsys):
    """260 steps of Pendulum, one whole episode and a piece of the next one: 262 rows, two checkpoints."""
    found: list[Disk] = []

    def noted(room: Disk, sizes: Sizes, free: int) -> str:
        found.append(room)
        return "kept"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shown, "disk_line", noted)
        planned(capsys)
    (room,) = found
    assert run("-n", "real", "--quiet", "--seed", "1") == 0
    real = task / "real"
    checkpoints = list(real.glob("checkpoints/step_*"))
    assert len(checkpoints) == 2 <= room.kept
    sizes = [sum(file.stat().st_size for file in folder.iterdir()) for folder in checkpoints]
    assert max(sizes) == pytest.approx(room.checkpoints / room.kept, rel=0.1)
    replay = sum(file.stat().st_size for file in real.glob("replay/*"))
    assert 0.7 * room.replay < replay <= room.replay
    everything = sum(file.stat().st_size for file in real.rglob("*") if file.is_file())
    assert everything < room.total + FILE_BYTES + TENSOR_BYTES
