"""What the presets say about the environments of POPGym."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from algorithm.env.partial_obs import KeepElements

pytest.importorskip("popgym")


def make(name: str) -> gym.Env:
    return gym.make(f"popgym:popgym-{name}Easy-v0", disable_env_checker=True)


def test_who_names_the_suit_of_three_steps_before_gets_1() -> None:
    env = make("RepeatPrevious")
    obs, _ = env.reset(seed=4)
    seen, total, over = [obs], 0.0, False
    while not over:
        obs, reward, over, *_ = env.step(seen[max(len(seen) - 4, 0)])
        seen.append(obs)
        total += reward
    assert total == pytest.approx(1.0)


def test_pendulum_is_the_usual_one_with_scaled_rewards() -> None:
    """A return R there is 1 + R/1627 here."""
    env, usual = make("PositionOnlyPendulum"), KeepElements(gym.make("Pendulum-v1"), [0, 1])
    np.testing.assert_array_equal(env.reset(seed=2)[0], usual.reset(seed=2)[0])
    returns, ended = np.zeros(2), False
    while not ended:
        obs, reward, _, ended, _ = env.step(np.zeros(1, np.float32))
        expected, usual_reward, _, usual_ended, _ = usual.step(np.zeros(1, np.float32))
        np.testing.assert_array_equal(obs, expected)
        assert ended == usual_ended
        returns += reward, usual_reward
    assert returns[0] == pytest.approx(1 + returns[1] / 1627, abs=1e-3)
    assert round(1 - 157 / 1627.36, 3) == 0.904


def test_cart_pole_is_the_usual_one_without_its_speeds() -> None:
    env, usual = make("PositionOnlyCartPole"), KeepElements(gym.make("CartPole-v1"), [0, 2])
    np.testing.assert_array_equal(env.reset(seed=2)[0], usual.reset(seed=2)[0])
    over = False
    while not over:
        obs, reward, over, *_ = env.step(1)
        expected, _, usual_over, *_ = usual.step(1)
        np.testing.assert_array_equal(obs, expected)
        assert (reward, over) == (1 / 200, usual_over)
