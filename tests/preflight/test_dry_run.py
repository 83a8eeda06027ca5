"""Cost of a training: the arithmetic with fixed measurements, and the whole of ``--dry_run``."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime

import psutil
import pytest

from algorithm.app.check.cost import Plan, Sizes, Speed, num_times
from algorithm.app.check.dry_run import cost_rows, dry_run, time_rows
from algorithm.app.cli.parsing import parse_args
from algorithm.config.loader import load_config
from algorithm.config.schema import Config
from algorithm.core.errors import UsageError
from tests.run.sessions import run

SPEED = Speed(step=0.002, update=0.01, evaluation_step=0.004, updates_per_step=0.5, length=40.0, warm_up=500)
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
PLAN = Plan(steps=3000, updates=1250, evaluations=3, evaluation_steps=(1200, 6000), checkpoints=4, rows=3076)


def configured(**blocks) -> Config:
    base = {"max_step": 3000, **blocks.pop("base_config", {})}
    sac = {"start_step": 500, "save_model_per_step": 800, **blocks.pop("sac_config", {})}
    return Config.model_validate(
        {"base_config": base, "sac_config": sac, "eval_config": {"per_step": 1000}, **blocks}
    )


@pytest.mark.parametrize(
    ("steps", "interval", "times"), [(3000, 1000, 3), (3001, 1000, 4), (999, 1000, 1), (5000, -1, 1)]
)
def test_an_interval_is_due_at_the_end_too(steps, interval, times):
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
def test_limits_of_a_run(base, length, steps):
    plan = Plan.of(configured(base_config=base), replace(SPEED, length=length), None)
    assert (plan.steps if plan else None) == steps


def test_a_plan_by_hand():
    """2500 steps after the warm-up owe 1250 updates; 3 × 10 episodes of 40 steps, at most of 200; each of the
    75 training episodes leaves one row more, and that which is open another.
    """
    assert Plan.of(configured(), SPEED, 200) == PLAN


@pytest.mark.parametrize(
    ("seen", "each_iter", "own", "limit", "steps"),
    [
        (None, -1, None, 200, (6000, 6000)),
        (None, 50, None, 200, (1500, 1500)),
        (None, -1, -1, None, (0, 0)),
        (None, -1, None, None, (300_000, 300_000)),
        (None, -1, 20, 200, (600, 600)),
        (40, -1, 100, 200, (1200, 3000)),
    ],
)
def test_episodes_of_evaluations_last_as_long_as_seen_or_as_they_may(seen, each_iter, own, limit, steps):
    """3 evaluations of 10 episodes."""
    config = configured(
        base_config={"max_step_each_iter": each_iter}, eval_config={"per_step": 1000, "max_step": own}
    )
    plan = Plan.of(config, replace(SPEED, length=seen), limit)
    assert plan is not None and plan.evaluation_steps == steps


def test_a_duration_by_hand():
    """3000 × 2 ms; 1250 × 10 ms; 1200 to 6000 × 4 ms."""
    acting, updating, evaluating = PLAN.seconds(SPEED)
    assert (acting, updating, *evaluating) == pytest.approx((6.0, 12.5, 4.8, 24.0))
    unknown = replace(SPEED, update=math.nan)
    assert replace(PLAN, updates=0).seconds(unknown)[1] == 0.0


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
    config = configured(checkpoint_config=kept)
    found = PLAN.disk(config, replace(SIZES, kept=config.checkpoint_config.replay))
    assert found == (number, 1000 * number, 30 * rows + 8000 * each)


@pytest.mark.parametrize(("rows", "text"), [
    (3076, "at most 4.8 MB: 4.8 MB now, 35 KB more for 1,000 rows of replay, 2 KB while saving"),
    (350, "at most 4.8 MB: 4.8 MB now, 10 KB more for 350 rows of replay, 2 KB while saving"),
    (50, "at most 4.8 MB: 4.8 MB now, 0 KB more for 50 rows of replay, 2 KB while saving"),
])  # fmt: skip
def test_memory_by_hand(rows, text):
    """A row takes 40 bytes, 100 rows are held already; saving takes twice a checkpoint."""
    warned: list[str] = []
    told = dict(cost_rows(SPEED, replace(PLAN, rows=rows), SIZES, configured(), repeat=2, warn=warned.append))
    assert told["memory"].startswith(text) and not warned
    assert told[""] == "and 2 times that with --repeat 2"


def test_too_little_room_is_warned_of():
    warned: list[str] = []
    huge = replace(SIZES, checkpoint=2**60)
    cost_rows(SPEED, PLAN, huge, configured(), repeat=1, warn=warned.append)
    assert [line.split(":")[0] for line in warned] == ["memory may not suffice", "the disk may not suffice"]


def test_the_time_is_told_with_its_parts():
    noon = datetime(2030, 1, 1, 12, 0)
    speed = replace(SPEED, step=0.02, update=0.096, evaluation_step=0.01)
    assert time_rows(PLAN, speed, 10, noon) == [
        (
            "time",
            "3:12 to 4:00: 3,000 steps 1:00, 1,250 updates 2:00, 3 evaluations of 10 episodes 0:12 to 1:00; "
            "saving not counted",
        ),
        ("finished", "about 12:04 if it starts now"),
    ]
    late = time_rows(replace(PLAN, evaluation_steps=(1000, 1000)), replace(speed, step=28.8), 10, noon)
    assert late[0][1].startswith("24:02:10: 3,000 steps")
    assert late[1][1] == "about Wed 02 Jan, 12:02 if it starts now"


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
    with pytest.raises(UsageError, match="something else under the name"):
        planned(capsys, "-o", "base_config.name=taken")


def test_sizes_on_disk_are_those_of_a_training(task, capsys, monkeypatch):
    """260 steps of Pendulum, one whole episode and a piece of the next one: 262 rows, two checkpoints."""
    found: list[tuple[int, int, int]] = []
    disk = Plan.disk

    def noted(self: Plan, config: Config, sizes: Sizes) -> tuple[int, int, int]:
        found.append(disk(self, config, sizes))
        return found[-1]

    monkeypatch.setattr(Plan, "disk", noted)
    planned(capsys)
    ((number, nbytes, replay),) = found
    assert run("-n", "real", "--quiet", "--seed", "1") == 0
    real = task / "real"
    checkpoints = list(real.glob("checkpoints/step_*"))
    assert len(checkpoints) == 2 <= number
    sizes = [sum(file.stat().st_size for file in folder.iterdir()) for folder in checkpoints]
    assert max(sizes) == pytest.approx(nbytes / number, rel=0.1)
    written = sum(file.stat().st_size for file in real.glob("replay/*"))
    assert 0.7 * replay < written <= replay + 1000  # the headers of the files
