"""Wrappers by name, and simulators that print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from algorithm.core.errors import EnvError, UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.atari import PressFire
from algorithm.env.base import Fault
from algorithm.env.gym import GymRecipe
from algorithm.env.redirect_output import silence
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions
from tests import own_env


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
def test_wrappers_whose_statistics_are_in_no_checkpoint_are_told_once_with_what_to_do(workers):
    told: list[Fault] = []
    env = make_vec_env(
        "GYM",
        "tests.toys:Endless-v0",
        n=2,
        pool=PoolOptions(workers=workers, on_fault=told.append),
        wrappers=[{"NormalizeObservation": None}, {"NormalizeReward": None}],
        seed_of=lambda index, episode: 0,
    )
    for _ in range(2):
        env.reset()
    env.close()
    names = ["NormalizeReward", "NormalizeObservation"]
    assert [fault.what.split()[2] for fault in told] == names
    assert all(word in told[0].fix for word in ("sac_config.reward_scaling", "eval_config.wrappers"))
    assert "sac_config.use_normalization" in told[1].fix


@pytest.mark.parametrize("workers", [0, 1])
def test_wrappers_reach_every_copy_and_change_the_spaces(workers):
    env = make_vec_env(
        "GYM",
        "tests.toys:Endless-v0",
        n=2,
        pool=PoolOptions(workers=workers),
        wrappers=[{"FrameStackObservation": {"stack_size": 3}}],
        seed_of=lambda index, episode: 0,
    )
    assert env.specs[DEFAULT_BEHAVIOUR].obs.shapes == ((3, 1),)
    env.close()


class Game(gym.Env):
    """A game that writes down what it is told; it ends with the action ``over``."""

    observation_space = gym.spaces.Box(0.0, 9.0, (1,))
    action_space = gym.spaces.Discrete(4)

    def __init__(self, meanings: list[str], over: int | None = None) -> None:
        self.meanings, self.over, self.told = meanings, over, []

    def get_action_meanings(self) -> list[str]:
        return self.meanings

    def reset(self, *, seed=None, options=None):
        self.told.append(("reset", seed))
        return np.zeros(1, np.float32), {"lives": 0}

    def step(self, action):
        self.told.append(action)
        return np.full(1, action, np.float32), 1.0, action == self.over, False, {"lives": action}


@pytest.mark.parametrize(
    ("game", "told", "seen"),
    [
        (Game(["NOOP", "FIRE", "RIGHT", "LEFT"]), [("reset", 5), 1, 2], 2),
        (Game(["NOOP", "UP", "RIGHT", "LEFT"]), [("reset", 5)], 0),
        (Game(["NOOP", "FIRE", "RIGHT", "LEFT"], over=1), [("reset", 5), 1, ("reset", None), 2], 2),
        (Game(["NOOP", "FIRE", "RIGHT", "LEFT"], over=2), [("reset", 5), 1, 2, ("reset", None)], 0),
    ],
)
def test_an_episode_begins_with_fire_where_there_is_such_a_button(game, told, seen):
    env = PressFire(game)
    obs, info = env.reset(seed=5)
    assert game.told == told and obs.item() == seen == info["lives"]
    env.step(3)
    assert game.told == [*told, 3]


@pytest.mark.parametrize(("entry", "fragments"), [
    ({"ClipRewards": None}, ["no wrapper 'ClipRewards'", "did you mean 'ClipReward'?"]),
    ({"Zzz": None}, ["no wrapper 'Zzz'", "no class of that name"]),
    ({"no.such:Thing": None}, ["'no.such:Thing' cannot be imported", "No module named 'no'"]),
    ({"tests.toys:Endless": None}, ["no wrapper 'tests.toys:Endless'"]),
    ({}, ["has 0 names"]),
    ({"ClipReward": None, "TimeLimit": None}, ["has 2 names", "an entry of its own"]),
])  # fmt: skip
def test_a_wrapper_that_cannot_be_found_is_a_usage_error(entry, fragments):
    with pytest.raises(UsageError) as caught:
        make_vec_env(
            "GYM",
            "tests.toys:Endless-v0",
            pool=PoolOptions(workers=int(len(entry) == 2)),
            wrappers=[entry],
            seed_of=lambda index, episode: 0,
        )
    for fragment in ["base_config.wrappers", *fragments]:
        assert fragment in str(caught.value)


WRAPPER = """\
import gymnasium as gym


class Stretched(gym.ObservationWrapper):
    def __init__(self, env, times):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-9.0, 9.0, (times,))

    def observation(self, observation):
        return observation.repeat(self.observation_space.shape[0])
"""


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A task's folder with a wrapper in ``own_wrap.py`` and ``json.py``; it is not the current one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    own_env.write(tmp_path / "task")
    for name in ("own_wrap", "json"):
        (tmp_path / "task" / f"{name}.py").write_text(WRAPPER)
    with own_env.fresh_imports():
        yield tmp_path / "task"


def stretched(folder: Path, name: str, workers: int = 0) -> tuple[int, ...]:
    """The shape of an observation in the wrapper."""
    env = make_vec_env(
        "GYM",
        "own_env:Own-v0",
        folder=folder,
        n=2,
        pool=PoolOptions(workers=workers),
        wrappers=[{name: {"times": 3}}],
        seed_of=lambda index, episode: 0,
    )
    env.close()
    (shape,) = env.specs[DEFAULT_BEHAVIOUR].obs.shapes
    return shape


@pytest.mark.parametrize(
    ("name", "workers"), [("own_wrap:Stretched", 1), ("own_wrap.py:Stretched", 0), ("json:Stretched", 1)]
)
def test_a_wrapper_may_lie_beside_the_task(beside, name, workers):
    assert stretched(beside, name, workers) == (3,)


@pytest.mark.parametrize(("name", "fragments"), [
    ("own_warp.py:Stretched", ["there is no file own_warp.py", "base_config.wrappers", "task/own_warp.py"]),
    ("own_wrap.py:Streched", ["no wrapper", "did you mean Stretched? there: Stretched"]),
    ("own_wrap:Streched", ["no wrapper", "did you mean Stretched? there: Stretched"]),
    ("own_env.py:Nothing", ["no wrapper", "there: none"]),
])  # fmt: skip
def test_a_misspelt_wrapper_of_a_file_is_told_with_what_there_is(beside, name, fragments):
    with pytest.raises((EnvError, UsageError)) as caught:
        stretched(beside, name)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_a_file_of_wrappers_with_a_mistake_is_told_as_one(beside):
    (beside / "own_wrap.py").write_text("import gymnasium\ngymnasium.absent\n")
    with pytest.raises(UsageError, match="cannot be imported") as caught:
        stretched(beside, "own_wrap.py:Stretched")
    assert "AttributeError" in caught.value.why


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
