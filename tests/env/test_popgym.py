"""What the presets say about the environments of POPGym."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from algorithm.env.wrappers import KeepElements

pytest.importorskip("popgym")


@pytest.mark.parametrize(
    ("name", "kept", "action", "length", "scale"),
    [
        ("Pendulum", [0, 1], np.zeros(1, np.float32), 200, (1 / 1627, 1 / 200)),  # a return R is 1 + R/1627
        ("CartPole", [0, 2], 1, None, (1 / 200, 0.0)),
    ],
)
def test_it_is_the_usual_task_without_its_speeds_and_with_scaled_rewards(name, kept, action, length, scale):
    env = gym.make(f"popgym:popgym-PositionOnly{name}Easy-v0", disable_env_checker=True)
    usual = KeepElements(gym.make("CartPole-v1" if name == "CartPole" else "Pendulum-v1"), kept)
    np.testing.assert_array_equal(env.reset(seed=2)[0], usual.reset(seed=2)[0])
    over, steps = False, 0
    while not over:
        obs, reward, *ends, _ = env.step(action)
        expected, usual_reward, *usual_ends, _ = usual.step(action)
        np.testing.assert_array_equal(obs, expected)
        assert ends == usual_ends
        assert reward == pytest.approx(usual_reward * scale[0] + scale[1], abs=1e-5)
        over, steps = any(ends), steps + 1
    assert length in (None, steps)
