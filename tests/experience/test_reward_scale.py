"""``base_config.reward_scale``: learned from in another unit, told in the environment's own."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from algorithm.agents.sac.family import FAMILIES
from algorithm.config.schema import Config
from algorithm.env.checks.finding import Level
from algorithm.replay.buffer import ReplayBuffer
from algorithm.train.health import HealthMonitor
from tests import toys_check as toys
from tests.env.checks.test_checker import examined, faults, finding
from tests.run.sessions import run
from tests.train.test_health import RETURNS, summaries, watch

monitor = partial(HealthMonitor, FAMILIES["SAC"])


@pytest.fixture
def stored(monkeypatch):
    """The rewards that any replay is given, in their order."""
    rewards: list[float] = []
    add_steps = ReplayBuffer.add_steps

    def noted(self, steps):
        rewards.extend(steps.reward.tolist())
        return add_steps(self, steps)

    monkeypatch.setattr(ReplayBuffer, "add_steps", noted)
    return rewards


def trained(task, stored, name, *overrides):
    """Rewards of random actions as they were stored, and the metrics of the first summary."""
    stored.clear()
    flags = [word for override in overrides for word in ("-o", override)]
    assert run("-n", name, "--seed=1", "--quiet", "-o", "base_config.max_step=110", *flags) == 0
    rows = [json.loads(line) for line in (task / name / "metrics.jsonl").read_text().splitlines()]
    returns = [value for row in rows for key, value in row.items() if key.startswith("rollout/return")]
    return np.float32(stored[:100]), returns


@pytest.mark.parametrize("workers", [0, 1])
def test_rewards_are_stored_times_the_scale_and_returns_told_as_they_come(task, stored, workers, capfd):
    environment = ("base_config.env_name=tests.toys:Endless-v0", "base_config.max_step_each_iter=20")
    plain = trained(task, stored, "plain", *environment)
    scale = ("base_config.reward_scale=0.125", f"base_config.workers={workers}")
    scaled = trained(task, stored, f"scaled{workers}", *environment, *scale)
    assert plain[0].any() and plain[1]
    np.testing.assert_array_equal(scaled[0], plain[0] * np.float32(0.125))
    assert scaled[1] == plain[1]


def test_the_start_screen_tells_a_scale_that_is_set(task, capsys):
    flags = ("-n", "a", "-o", "base_config.max_step=10", "-o", "base_config.reward_scale=0.01")
    assert run(*flags) == 0
    assert "base_config.reward_scale" in capsys.readouterr().out


@pytest.mark.fault("F14")
@pytest.mark.parametrize(("toy", "factor"), [(toys.Rich, "1e-05"), (toys.Poor, "1e+06")])
def test_the_check_names_the_key_and_the_factor_and_is_content_with_them(toy, factor):
    found = finding(examined(toy), "rewards scale")
    assert found.fix == f"set base_config.reward_scale: {factor}; returns are still reported unscaled"
    assert faults(examined(toy, reward_scale=float(factor))) == {}


@pytest.mark.parametrize("toy", [toys.Rich, toys.Poor])
def test_the_check_is_content_with_rewards_that_reward_scaling_divides(toy):
    found = finding(examined(toy, rewards_scaled=True), "rewards scale")
    assert found.level is Level.OK and "sac_config.reward_scaling" in found.what


def test_the_check_tells_what_scale_makes_of_sound_rewards():
    found = finding(examined(toys.Sound, reward_scale=1e6), "rewards scale")
    assert found.level is Level.WARNING and "times base_config.reward_scale (1e+06)" in found.what


@pytest.mark.parametrize(("scale", "told"), [(1.0, True), (1000.0, False)])
def test_the_watchdog_compares_values_with_scaled_returns(scale, told):
    """Values of 25,000 where an episode returns 200: impossible, unless learned a thousandfold."""
    config = Config.model_validate({"base_config": {"reward_scale": scale}})
    rows = list(summaries(**{"value/q_mean": lambda k: 1.5 ** (k + 6)}, count=20))
    assert RETURNS["rollout/return_max"] == 200.0
    assert any("the critics diverge" in line for _, line in watch(monitor(config), rows)) is told


def test_the_watchdog_weighs_a_temperature_with_scaled_returns():
    """α doubles with every summary: the bonus passes 1000 · 200 later than it passes 200."""
    series = {
        "policy/alpha_c": lambda k: 0.1 * 2.0**k,
        "policy/target_entropy_c": -1.0,
        "policy/entropy_c": -1.0,
    }
    lines = {}
    for scale in (1.0, 1000.0):
        config = Config.model_validate({"base_config": {"reward_scale": scale}})
        said = watch(monitor(config), summaries(**series))
        lines[scale] = next((step, line) for step, line in said if "runs away" in line)
    assert lines[1.0][0] + 8000 <= lines[1000.0][0]
    assert "more than 200 ·" in lines[1.0][1]
    assert "more than 200,000, scaled by reward_scale (1000) ·" in lines[1000.0][1]
