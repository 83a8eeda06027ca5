"""Wrappers by name, and simulators that print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from algorithm.env.gym import GymRecipe
from algorithm.env.quiet import silence
from algorithm.env.registry import make_vec_env
from algorithm.errors import EnvError, UsageError
from algorithm.spec import DEFAULT_BEHAVIOUR


def recipe(*wrappers: dict) -> GymRecipe:
    return GymRecipe(env_id="tests.toys:Endless-v0", env_args={}, wrappers=wrappers)


class Doubling(gym.RewardWrapper):
    """A wrapper of somebody's own."""

    def reward(self, reward: float) -> float:
        return 2 * reward


def test_wrappers_are_put_on_in_their_order_with_their_arguments():
    """Two repeats, then twice the reward: −0.5 each for u = 0, so −2 for a step; the other order is the same
    number, so the order is read off the stack."""
    env = recipe({"RepeatAction": {"num_repeats": 2}}, {"tests.env.test_wrappers:Doubling": None})(0)
    names = []
    layer = env._env
    while isinstance(layer, gym.Wrapper):
        names.append(type(layer).__name__)
        layer = layer.env
    assert names[:2] == ["Doubling", "RepeatAction"]
    env.reset(1)
    seen, reward, *_ = env.step(np.zeros(1, np.float32))
    assert (seen.obs["obs"].item(), reward) == (2.0, -2.0)


@pytest.mark.parametrize("workers", [0, 1])
def test_wrappers_reach_every_copy_and_change_the_spaces(workers):
    env = make_vec_env(
        "GYM",
        "tests.toys:Endless-v0",
        n=2,
        workers=workers,
        wrappers=[{"FrameStackObservation": {"stack_size": 3}}],
        seed_of=lambda index, episode: 0,
    )
    assert env.specs[DEFAULT_BEHAVIOUR].obs.shapes == ((3, 1),)
    env.close()


@pytest.mark.parametrize(("entry", "fragments"), [
    ({"ClipRewards": None}, ["no wrapper 'ClipRewards'", "did you mean 'ClipReward'?"]),
    ({"Zzz": None}, ["no wrapper 'Zzz'", "no class of that name"]),
    ({"no.such:Thing": None}, ["'no.such:Thing' cannot be imported", "No module named 'no'"]),
    ({"tests.toys:Endless": None}, ["no wrapper 'tests.toys:Endless'"]),
    ({}, ["has 0 names"]),
    ({"ClipReward": None, "TimeLimit": None}, ["has 2 names", "an entry of its own"]),
])  # fmt: skip
@pytest.mark.parametrize("workers", [0, 1])
def test_a_wrapper_that_cannot_be_found_is_a_usage_error(entry, fragments, workers):
    with pytest.raises(UsageError) as caught:
        make_vec_env(
            "GYM",
            "tests.toys:Endless-v0",
            workers=workers,
            wrappers=[entry],
            seed_of=lambda index, episode: 0,
        )
    for fragment in ["base_config.wrappers", *fragments]:
        assert fragment in str(caught.value)


def test_wrong_arguments_of_a_wrapper_name_it_and_close_the_environment():
    with pytest.raises(EnvError) as caught:
        recipe({"RepeatAction": {"times": 2}})(0)
    for fragment in ["RepeatAction with {'times': 2}", "Endless", "unexpected keyword argument 'times'"]:
        assert fragment in str(caught.value)


class Blind(gym.Wrapper):
    """A wrapper that needs a package which is not there."""

    def __init__(self, env: gym.Env) -> None:
        raise gym.error.DependencyNotInstalled("opencv-python package not installed")


def test_a_package_that_a_wrapper_misses_is_told_with_what_brings_it():
    with pytest.raises(EnvError, match=r'pip install -e "\.\[atari\]"'):
        recipe({"tests.env.test_wrappers:Blind": None})(0)


def test_silence_holds_for_code_that_knows_no_python(capfd):
    with silence():
        os.write(1, b"descriptor\n")
        subprocess.run(["sh", "-c", "echo child; echo child >&2"], check=True)
    print("after")
    assert capfd.readouterr() == ("after\n", "")


def test_silence_ends_with_an_exception(capfd):
    with pytest.raises(ZeroDivisionError), silence():
        1 / 0  # noqa: B018
    print("after")
    assert capfd.readouterr().out == "after\n"


def test_pybullet_prints_nothing():
    """In a process of its own: it prints when it is imported, and when an environment first connects."""
    program = (
        "import numpy as np\n"
        "from algorithm.env.registry import make_vec_env\n"
        "env = make_vec_env('GYM', 'pybullet_envs_gymnasium:InvertedPendulumSwingupBulletEnv-v0', n=2,"
        " seed_of=lambda index, episode: 0)\n"
        "env.reset(); env.step({'default': np.zeros((2, 1), np.float32)}); env.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, cwd=Path.cwd()
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
