"""The watchdog of PPO and A2C: it names what is surely wrong, and says nothing of recorded healthy runs."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from algorithm.agents.on_policy.family import FAMILIES
from algorithm.agents.on_policy.health import WATCHED, make_rules
from algorithm.config.schema import Config, fields
from algorithm.runs.logs.metrics import METRICS
from algorithm.train.health import HealthMonitor

RECORDED = Path(__file__).resolve().parents[1] / "golden" / "health"

KEYS = {".".join(path) for path, _ in fields()}


def config(algorithm="PPO", sac=None, **own):
    block = "ppo_config" if algorithm == "PPO" else "a2c_config"
    return Config.model_validate({"algorithm": algorithm, block: own, "sac_config": sac or {}})


def told(config, rows):
    """Every line, with its step."""
    health = HealthMonitor(FAMILIES[config.algorithm], config)
    return [(step, line) for step, values in rows for line in health.update(step, values)]


def summaries(count=30, **series):
    """Made-up summaries whose returns stay as they are; a series is a number, or a function of how many came
    before."""
    returns = {f"rollout/return_{name}": 20.0 for name in ("mean", "min", "max")} | {"rollout/length": 20.0}
    for k in range(count):
        values = {name: value(k) if callable(value) else value for name, value in series.items()}
        yield 1000 * (k + 1), {**returns, **values}


FALLING, RISING = (lambda k: 100.0 - k), (lambda k: 20.0 + k)
TOO_FAR = {"ppo/approx_kl": 0.2, "ppo/clip_fraction": 0.3, "rollout/return_mean": FALLING}
NOTHING = {"ppo/explained_variance": -0.1}
COLLAPSED = {"policy/entropy_share": lambda k: 1.0 if k < 4 else 0.005}
WIDER = {"policy/std": lambda k: min(7.39, 1.0 + 0.2 * k)}


@pytest.mark.parametrize(("name", "summaries_of_it"), [("cart_pole_ppo", 30), ("acrobot_ppo", 20)])
def test_recorded_healthy_runs_are_left_alone(name, summaries_of_it):
    with (RECORDED / f"{name}.csv").open() as file:
        rows = [{key: float(cell) for key, cell in row.items() if cell} for row in csv.DictReader(file)]
    assert len(rows) >= summaries_of_it
    assert told(config(), [(row["step"], row) for row in rows]) == []


@pytest.mark.parametrize(
    ("config", "rows", "step", "line"),
    [
        (
            config(learning_rate=0.01, num_epoch=20),
            TOO_FAR,
            6000,
            "updates move the policy too far: ppo/approx_kl is 0.2 and ppo/clip_fraction 0.3, and returns "
            "fall, 96 after 99 · lower ppo_config.learning_rate (0.01) or ppo_config.num_epoch (20), or set "
            "ppo_config.target_kl",
        ),
        (
            config(sac={"reward_scaling": False}),
            NOTHING,
            12_000,
            "values learn nothing: ppo/explained_variance is -0.1, and episodes return 20, no more than at "
            "the start (20) · raise ppo_config.value_coef (0.5) or ppo_config.learning_rate (0.0003), or "
            "lower ppo_config.gae_lambda (0.95), or set sac_config.reward_scaling to true",
        ),
        (
            config("A2C", entropy_coef=0.0),
            COLLAPSED,
            10_000,
            "the policy has stopped exploring: its entropy is 0.5 % of that of random choices, and episodes "
            "return 20, no more than at the start (20) · raise a2c_config.entropy_coef (0) or lower "
            "a2c_config.learning_rate (0.0007)",
        ),
        (
            config(entropy_coef=0.1),
            WIDER,
            12_000,
            "the policy only grows wider: policy/std is 3.2 and still grows, so that most actions lie at a "
            "bound, and episodes return 20, no more than at the start (20) · lower ppo_config.entropy_coef "
            "(0.1)",
        ),
    ],
    ids=["too far", "nothing", "collapsed", "wider"],
)
def test_trouble_is_told_once_with_its_keys(config, rows, step, line):
    assert told(config, summaries(**rows)) == [(step, line)]
    assert any(key in line.split(" · ")[1] for key in KEYS)


def test_half_of_the_ratios_outside_the_clip_are_too_far_as_well():
    rows = {**TOO_FAR, "ppo/approx_kl": 0.01, "ppo/clip_fraction": 0.6}
    ((_, line),) = told(config(target_kl=0.1), summaries(**rows))
    assert "ppo/clip_fraction 0.6" in line and line.endswith("ppo_config.num_epoch (10)")


@pytest.mark.parametrize(
    ("why", "rows"),
    [
        ("the policy learns by large updates", {**TOO_FAR, "rollout/return_mean": RISING}),
        ("it stays at its best", {**TOO_FAR, "rollout/return_mean": 500.0}),
        ("updates are small", {**TOO_FAR, "ppo/approx_kl": 0.09}),
        ("most are", {**TOO_FAR, "ppo/approx_kl": lambda k: 0.05 if k % 5 == 0 else 0.9}),
        ("A2C has but one update", {"ppo/approx_kl": 0.0, "ppo/clip_fraction": 0.0}),
        ("there is little to explain at the best return", {**NOTHING, "rollout/return_mean": RISING}),
        ("something is explained", {"ppo/explained_variance": lambda k: 0.01 if k % 11 == 0 else -1.0}),
        ("nothing is known of episodes", {**NOTHING, "rollout/length": math.nan}),
        ("the best choices are sure", {**COLLAPSED, "rollout/return_mean": RISING}),
        ("there was never a choice", {"policy/entropy_share": 0.005}),
        ("it still tries others", {"policy/entropy_share": lambda k: 1.0 if k < 4 else 0.02}),
        ("a wide policy learns", {**WIDER, "rollout/return_mean": RISING}),
        ("it is wide and stays so", {"policy/std": 7.0}),
        ("it grows and is not wide", {"policy/std": lambda k: 1.0 + 0.05 * k}),
    ],
)
def test_what_looks_alike_is_left_alone(why, rows):
    assert told(config(), summaries(**rows)) == [], why


def test_rules_fit_the_family_and_what_they_watch_is_logged():
    both = {"values", "collapsed", "widening"}
    assert set(make_rules(config())) == both | {"too_far"} and set(make_rules(config("A2C"))) == both
    assert set(WATCHED) <= set(METRICS)
    (line,) = (line for _, line in told(config(), summaries(**WIDER)))
    assert line.endswith("lower ppo_config.learning_rate (0.0003)")
    ((_, line),) = told(config(sac={"reward_scaling": True}), summaries(**NOTHING))
    assert "reward_scaling" not in line
