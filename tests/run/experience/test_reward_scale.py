"""``base_config.reward_scale``: learned from in another unit, shown in the environment's own."""

import json

import numpy as np

from algorithm.replay.buffer import ReplayBuffer
from tests.lib.callbacks import watch
from tests.lib.sessions import run

COMMON = {"env_name": "tests.lib.toys:Endless-v0", "max_step_each_iter": 20, "max_step": 110}


def test_rewards_are_stored_times_the_scale_and_returns_shown_as_they_come(task, monkeypatch):
    rewards: list[float] = []
    watch(monkeypatch, ReplayBuffer, "add_steps", lambda _, steps: rewards.extend(steps.reward.tolist()))
    returns = []
    for name, scale, workers in (("a", 1.0, 0), ("b", 0.125, 0), ("c", 0.125, 1)):
        own = {**COMMON, "reward_scale": scale, "workers": workers}
        flags = [word for key, value in own.items() for word in ("-o", f"base_config.{key}={value}")]
        assert run("-n", name, "--seed=1", "--quiet", *flags) == 0
        rows = map(json.loads, (task / name / "metrics.jsonl").read_text().splitlines())
        returns.append([v for row in rows for k, v in row.items() if k.startswith("rollout/return")])
    plain, scaled, of_worker = np.float32(rewards).reshape(3, 110)[:, :100]  # of random actions
    assert plain.any() and returns[0] and returns[0] == returns[1] == returns[2]
    np.testing.assert_array_equal(scaled, plain * np.float32(0.125))
    np.testing.assert_array_equal(of_worker, scaled)
    assert (task / "c" / "workers" / "worker_0.log").exists()
