"""The health monitor names sure trouble, once, and is silent otherwise; its texts: ``tests.messages``."""

import csv
import json
import math
from pathlib import Path

import pytest

from algorithm.agents.health import RETURNS, History, Summary
from algorithm.agents.on_policy.metrics import WATCHED as OF_ON_POLICY
from algorithm.agents.registry import family
from algorithm.agents.sac.metrics import WATCHED
from algorithm.config.schema import Config, fields
from algorithm.run.health import HealthMonitor
from algorithm.store.logs.registry import METRICS
from tests.run.health_cases import LIKE_TROUBLE, TROUBLES, Case, on_policy, sac, summaries, temperature

RECORDED = Path(__file__).resolve().parents[1] / "golden" / "health"
"""Of real runs, with the columns that are watched, to six digits."""

CART_POLE = {"start_step": 500, "batch_size": 128}


def monitor(config: Config) -> HealthMonitor:
    return HealthMonitor(family(config), config)


def watch(health, rows):
    """Every line that is said, with its step."""
    return [(step, line) for step, values in rows for line in health.update(step, values)]


def recorded(name):
    """Steps and metrics of a recorded run."""
    with (RECORDED / f"{name}.csv").open() as file:
        for row in csv.DictReader(file):
            yield int(float(row.pop("step"))), {metric: float(cell) for metric, cell in row.items() if cell}


@pytest.mark.parametrize(
    ("name", "config", "step"),
    [
        ("cart_pole", sac(**CART_POLE, target_d_alpha=0.6), None),
        ("cart_pole_0.7", sac(**CART_POLE, target_d_alpha=0.7), None),
        ("pendulum", sac(**CART_POLE), None),
        ("recall", sac(init_log_alpha=-4.0, replay_ratio=0.5, start_step=200), None),
        ("acrobot", sac(target_d_alpha=0.9, batch_size=64), None),
        ("pendulum_bare", sac(clip_epsilon=-1.0), None),
        ("cart_pole_bare", sac(clip_epsilon=-1.0, batch_size=64), None),
        ("hybrid", sac(clip_epsilon=-1.0, batch_size=64), None),
        ("hybrid_clipped", sac(clip_epsilon=0.2, batch_size=64), None),
        ("cart_pole_ppo", on_policy(), None),
        ("acrobot_ppo", on_policy(), None),
        # α · H̄ · 100 = 551 passes 500; at 12,000 steps values stand at 600
        ("cart_pole_0.9", sac(**CART_POLE, target_d_alpha=0.9), 8500),
        # a value of −5 where −59 stands without the clip
        ("pendulum_clipped", sac(clip_epsilon=0.2, tau=0.005), 2500),
        # the return fell to 0 at 3,500
        ("mini_grid", sac(clip_epsilon=-1.0, init_log_alpha=-2.3, batch_size=64), 6000),
    ],
)
def test_recorded_runs_get_a_line_where_they_are_in_trouble(name, config, step):
    rows = list(recorded(name))
    assert len(rows) >= 6
    assert [at for at, _ in watch(monitor(config), rows)] == ([step] if step else [])


@pytest.mark.parametrize("case", TROUBLES, ids=lambda case: case.name)
def test_a_trouble_is_told_once_when_it_is_certain_with_a_key(case: Case):
    ((step, line),) = watch(monitor(case.config), case.rows)
    what, fix = line.split(" · ")
    assert step == case.step and "\n" not in what
    assert any(".".join(path) in fix for path, _ in fields())


@pytest.mark.parametrize("case", LIKE_TROUBLE, ids=lambda case: case.name)
def test_what_looks_alike_is_left_alone(case: Case):
    assert watch(monitor(case.config), case.rows) == []


@pytest.mark.parametrize("cut", [3, 16, 17, 20])
def test_a_resumed_run_goes_on_and_repeats_nothing(cut):
    config, rows = sac(**CART_POLE, target_d_alpha=0.9), list(recorded("cart_pole_0.9"))
    before, after = monitor(config), monitor(config)
    told = watch(before, rows[:cut])
    after.load_state(json.loads(json.dumps(before.state(), allow_nan=False)))
    assert after.state() == before.state()
    assert told + watch(after, rows[cut:]) == watch(monitor(config), rows)


@pytest.mark.parametrize("damage", [{"rows": 3}, {"rows": [{"step": 1}]}, {"extremes": {}}, {"reported": 0}])
def test_a_foreign_state_is_refused(damage):
    health = monitor(sac())
    with pytest.raises(ValueError, match="not one of this version"):
        health.load_state(health.state() | damage)


def test_two_troubles_are_two_lines_and_numbers_that_are_not_finite_are_missing():
    health = monitor(sac())
    both = {"value/q_mean": lambda k: -(1.5**k), "policy/entropy_d": 0.01}
    assert len(watch(health, summaries(temperature(growth=1.2) | both))) == 2
    health = monitor(sac())
    assert watch(health, summaries(dict.fromkeys(WATCHED, math.inf), every=1)) == []
    json.dumps(health.state(), allow_nan=False)


def test_extremes_are_those_of_the_whole_run():
    history = History(random_until=100, reward_scale=2.0)
    for step, *values in ((50, -2, -30, 1, 10), (150, 7, 7, 7, 7)):
        history.add(Summary(step, dict(zip(RETURNS, values, strict=True))))
    assert (history.largest_return, history.largest_reward, history.longest_episode) == (60, 6, 10)


def test_what_is_watched_is_logged():
    assert {*WATCHED, *OF_ON_POLICY} <= set(METRICS)
