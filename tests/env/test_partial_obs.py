"""Hiding elements of a vector by configuration."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from algorithm.core.errors import EnvError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.partial_obs import KeepElements
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions

WRAPPER = "algorithm.env.partial_obs:KeepElements"


def test_it_shows_what_is_listed_in_that_order() -> None:
    whole, env = gym.make("CartPole-v1"), KeepElements(gym.make("CartPole-v1"), [2, 0])
    expected, _ = whole.reset(seed=3)
    obs, _ = env.reset(seed=3)
    for _ in range(5):
        np.testing.assert_array_equal(obs, expected[[2, 0]])
        assert env.observation_space.contains(obs)
        expected, *_ = whole.step(1)
        obs, *_ = env.step(1)
    low = whole.observation_space.low
    np.testing.assert_array_equal(env.observation_space.low, low[[2, 0]])
    np.testing.assert_array_equal(env.observation_space.high, -low[[2, 0]])


def test_what_it_shows_is_a_copy_and_of_the_same_type() -> None:
    env = KeepElements(
        gym.make("tests.toys:Counting-v0", disable_env_checker=True), [1]
    )  # one float64 array, changed in place
    first, _ = env.reset(seed=0)
    env.step(np.zeros(1, np.float32))
    assert first == 0.0
    assert env.observation_space.dtype == first.dtype == np.float64


@pytest.mark.parametrize(("n", "workers"), [(1, 0), (2, 0), (2, 1)])
def test_it_is_put_on_by_name_wherever_the_copies_run(n: int, workers: int) -> None:
    """CartPole brings a vector class, which would know nothing of wrappers."""
    env = make_vec_env(
        "GYM",
        "CartPole-v1",
        n=n,
        pool=PoolOptions(workers=workers),
        wrappers=[{WRAPPER: {"indices": [0, 2]}}],
        seed_of=lambda index, episode: 10 * index + episode,
    )
    try:
        assert env.specs[DEFAULT_BEHAVIOUR].obs.shapes == ((2,),)
        obs = env.reset()[DEFAULT_BEHAVIOUR].obs["obs"]
        whole = gym.make("CartPole-v1")
        for index in range(n):
            np.testing.assert_array_equal(obs[index], whole.reset(seed=10 * index)[0][[0, 2]])
    finally:
        env.close()


@pytest.mark.parametrize(
    ("name", "indices", "message"),
    [
        ("CartPole-v1", [], r"indices is \[\]; it must be a list"),
        ("CartPole-v1", 2, "indices is 2; it must be a list"),
        ("CartPole-v1", "02", "indices is '02'; it must be a list"),
        ("CartPole-v1", [0, 4], r"has \[4\]; the elements of this observation are 0 to 3"),
        ("CartPole-v1", [-1], r"has \[-1\]"),
        ("CartPole-v1", [True, 1.0], r"has \[True, 1.0\]"),
        ("CartPole-v1", [1, 1], r"an element twice: \[1, 1\]"),
        ("FrozenLake-v1", [0], r"the observation is Discrete\(16\); elements can be kept of a Box with one"),
    ],
)
def test_what_cannot_be_kept_is_refused(name: str, indices: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KeepElements(gym.make(name), indices)


def test_images_have_no_elements_to_keep() -> None:
    stacked = gym.wrappers.FrameStackObservation(gym.make("CartPole-v1"), 2)
    with pytest.raises(ValueError, match="with one dimension"):
        KeepElements(stacked, [0])


def test_a_mistake_in_a_configuration_says_where() -> None:
    with pytest.raises(
        EnvError, match=r"(?s)KeepElements with .*the elements of this observation are 0 to 3"
    ) as caught:
        make_vec_env(
            "GYM", "CartPole-v1", wrappers=[{WRAPPER: {"indices": [7]}}], seed_of=lambda index, episode: 0
        )
    assert "base_config.wrappers" in str(caught.value)


def test_its_arguments_are_part_of_what_the_environment_says_of_itself() -> None:
    spec = KeepElements(gym.make("CartPole-v1"), [0, 2]).spec
    assert spec is not None
    assert spec.additional_wrappers[-1].kwargs == {"indices": [0, 2]}
