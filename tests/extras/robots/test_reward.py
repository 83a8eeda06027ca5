"""A reward learned from recordings."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box

from algorithm.core.data import DemoEpisode
from algorithm.core.errors import UsageError
from algorithm.core.spec import ObsSpec
from algorithm.extras.robots.reward import LearnedReward, LearnedSuccess, learn_success

OBS = ObsSpec(("obs",), ((2,),), ("float32",))


def episode(seed, success):
    """Walk of ten steps, which leaves ±1 in its last step where it ends with success."""
    rng = np.random.default_rng(seed)
    obs = rng.uniform(-1, 1, (11, 2)).astype(np.float32)
    reward = np.zeros(10, np.float32)
    if success:
        obs[-1, 0], reward[-1] = rng.uniform(1.5, 2.5), 1.0
    return DemoEpisode(
        obs={"obs": obs},
        action_mask=None,
        action=None,
        reward=reward,
        terminated=success,
        z=None,
        behaviour_logp=None,
    )


class Walk(gym.Env):
    """Shows the number that is its action."""

    def __init__(self, size=2):
        self.observation_space = Box(-np.inf, np.inf, (size,))
        self.action_space = Box(-3.0, 3.0, (1,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        obs = np.zeros(self.observation_space.shape, np.float32)
        obs[0] = action[0]
        return obs, -5.0, False, False, {}


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A file, and the classifier that it holds."""
    file = tmp_path_factory.mktemp("reward") / "reward.safetensors"
    success = learn_success(OBS, [episode(i, i % 2 == 0) for i in range(40)], seed=0)
    success.save(file)
    return file, success


def test_success_is_rewarded_and_ends_the_episode(learned):
    file, success = learned
    assert success.missed == 0.0
    assert success.mistaken < 0.05
    env = LearnedReward(Walk(), str(file))
    env.reset()
    assert env.step([2.0])[1:3] == (1.0, True)
    _, reward, terminated, _, info = env.step([0.0])
    assert (reward, terminated, info["is_success"]) == (0.0, False, False)
    assert info["success_probability"] < success.threshold
    assert LearnedReward(Walk(), str(file), threshold=0.0).step([0.0])[1] == 1.0


@pytest.mark.parametrize("successes", [0, 1])
def test_too_few_successes_are_refused(successes):
    with pytest.raises(UsageError, match=f"{successes} of 5 episodes"):
        learn_success(OBS, [episode(i, i < successes) for i in range(5)], seed=0)


def test_a_file_of_other_observations_or_none_is_refused(learned, tmp_path):
    with pytest.raises(UsageError, match="the environment has"):
        LearnedReward(Walk(3), str(learned[0]))
    wider = replace(OBS, ranges=((0.0, 2.0),))
    with pytest.raises(UsageError, match="the environment has"):
        LearnedSuccess.load(learned[0], wider)
    (tmp_path / "other.safetensors").write_bytes(b"no")
    for name in ("other.safetensors", "missing.safetensors"):
        with pytest.raises(UsageError, match="cannot be used"):
            LearnedReward(Walk(), str(tmp_path / name))
