"""The corridor: who walks forward gets the reward, who walks at random does not."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from algorithm.env.toys.corridor import ToyCorridor

ID = "algorithm.env.toys:ToyCorridor-v0"


def make(**kwargs) -> gym.Env:
    return gym.make(ID, disable_env_checker=True, **kwargs)


def test_forward_to_the_end_is_worth_1_once():
    env = make(length=4)
    obs, _ = env.reset(seed=0)
    assert obs.tolist() == [1, 0, 0, 0]
    steps = [(0, 0), (1, 1), (0, 0), (0, 0), (1, 1), (1, 2)]
    for action, cell in steps:
        obs, reward, terminated, truncated, _ = env.step(np.int64(action))
        assert (obs.argmax(), obs.sum(), reward, terminated, truncated) == (cell, 1, 0.0, False, False)
    obs, reward, terminated, _, _ = env.step(np.int64(1))
    assert (obs.tolist(), reward, terminated) == ([0, 0, 0, 1], ToyCorridor.optimum, True)


def test_an_episode_has_120_steps_for_59():
    env = make()
    env.reset(seed=0)
    ends = [env.step(np.int64(0))[2:4] for _ in range(120)]
    assert ends == [(False, False)] * 119 + [(False, True)]
    env.reset()
    assert [env.step(np.int64(1))[2] for _ in range(59)] == [False] * 58 + [True]


def test_coverage_counts_cells_over_all_episodes():
    env = make(length=5, max_episode_steps=3)
    toy = env.unwrapped
    assert toy.coverage == 0
    for actions in ((1, 1), (1, 0, 0)):
        env.reset()
        for action in actions:
            env.step(np.int64(action))
    assert toy.visited.tolist() == [4, 2, 1, 0, 0] and toy.coverage == 3


def chance_of_a_random_walk(length: int, steps: int) -> float:
    """Exactly, by the distribution over cells."""
    at = np.zeros(length)
    at[0] = 1.0
    for _ in range(steps):
        then = np.zeros(length)
        then[1:] += 0.5 * at[:-1]
        then[:-2] += 0.5 * at[1:-1]
        then[0] += 0.5 * at[0]
        then[-1] += at[-1]
        at = then
    return float(at[-1])


@pytest.mark.parametrize(("length", "steps"), [(60, 120), (20, 120), (10, 20), (3, 5)])
def test_a_random_walk_gets_there_no_more_often_than_the_bound_says(length, steps):
    chance = chance_of_a_random_walk(length, steps)
    assert 0 < chance <= 4 * np.exp(-((length - 1) ** 2) / (2 * steps))
    if length == 60:
        assert chance < 2e-6


def test_the_distribution_is_that_of_the_environment():
    env, rng = make(length=4, max_episode_steps=6), np.random.default_rng(0)
    got = []
    for _ in range(1500):
        env.reset()
        over = False
        while not over:
            _, reward, terminated, truncated, _ = env.step(np.int64(rng.integers(2)))
            over = terminated or truncated
        got.append(reward)
    assert np.mean(got) == pytest.approx(chance_of_a_random_walk(4, 6), abs=0.04)


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="length is 1; it must be at least 2"):
        make(length=1)
    env = make()
    env.reset()
    with pytest.raises(ValueError, match="is not in Discrete"):
        env.step(np.int64(2))
