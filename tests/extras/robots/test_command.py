"""``--train_reward`` from the command line."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np

from algorithm.extras.robots.reward import LearnedReward
from main import main
from tests.lib.episodes import record

TASK = "tests.extras.robots.reaching:Reaching-v0"
UNPAID = "tests.extras.robots.reaching:Unpaid-v0"


def test_a_reward_is_learned_from_recordings_and_used_as_the_command_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    record(Path("successes.npz"), TASK, 12, limit=40, torque=lambda obs: np.full((1, 1), 0.4))
    record(Path("failures.npz"), TASK, 12, limit=40, torque=lambda obs: np.full((1, 1), -0.4))
    assert main([UNPAID, "--train_reward", "successes.npz", "failures.npz", "--seed", "1"]) == 0
    said = capsys.readouterr().out
    assert "training with 24 episodes" in said and "0.0% of the successes" in said
    use = '"algorithm.extras.robots.reward:LearnedReward": {file: reward.safetensors}'
    assert use in said
    Path("task.yaml").write_text(f"default:\n  base_config: {{env_name: '{UNPAID}', wrappers: [{use}]}}\n")
    assert main([UNPAID, "-c", "task.yaml", "--check"]) == 0
    env = LearnedReward(gym.make(UNPAID), "reward.safetensors")
    for action, successes in ((0.4, 1), (-0.4, 0)):
        env.reset(seed=0)
        steps = [env.step(np.full(1, action, np.float32)) for _ in range(4)]
        assert [step[1] for step in steps] == [0.0] * 3 + [float(successes)]
        assert [step[2] for step in steps] == [False] * 3 + [bool(successes)]
