"""``base_config.reward_scale``: learned from in another unit, told in the environment's own."""

from __future__ import annotations

import json

import numpy as np
import pytest

from algorithm.replay.buffer import ReplayBuffer
from tests.run.sessions import run


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
