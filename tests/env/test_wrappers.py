"""Wrappers by name, those of the project, hints for missing packages, and simulators that print."""

import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from algorithm.core.errors import EnvError, UsageError
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.core.system.output import silence
from algorithm.env.base import Fault, VecEnv
from algorithm.env.env_id import _EXTRAS, advice
from algorithm.env.gym import GymRecipe
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.env.wrappers import KeepElements, PressFire
from tests.lib import (
    own_env,
    toys,  # noqa: F401 - registers its environments before `fresh_imports` would forget them
)

KEEP = "algorithm.env.wrappers:KeepElements"


def wrapped(*wrappers: dict[str, Any], name: str = "tests.lib.toys:Endless-v0", **options: Any) -> VecEnv:
    seed_of = lambda index, episode: 10 * index  # noqa: E731
    return make_vec_env(EnvRequest("GYM", name, n=2, wrappers=wrappers, seed_of=seed_of, **options))


class Doubling(gym.RewardWrapper):
    """A wrapper of somebody's own."""

    def reward(self, reward: float) -> float:
        return 2 * reward


def test_wrappers_are_put_on_in_their_order_with_their_arguments():
    """Two repeats, then twice the reward: −0.5 each for u = 0, so −2 for a step."""
    entries = ({"RepeatAction": {"num_repeats": 2}}, {"tests.env.test_wrappers:Doubling": None})
    env = GymRecipe(env_id="tests.lib.toys:Endless-v0", env_args={}, wrappers=entries)(0)
    assert [type(env._env).__name__, type(env._env.env).__name__] == ["Doubling", "RepeatAction"]
    env.reset(1)
    seen, reward, *_ = env.step(np.zeros(1, np.float32))
    assert (seen.obs["obs"].item(), reward) == (2.0, -2.0)


def test_wrappers_whose_statistics_are_in_no_checkpoint_are_told_once_with_what_to_do():
    told: list[Fault] = []
    pool = {"workers": 1, "on_fault": told.append}
    with closing(wrapped({"NormalizeObservation": None}, {"NormalizeReward": None}, **pool)) as env:
        for _ in range(2):
            env.reset()
    assert [fault.what.split()[2] for fault in told] == ["NormalizeReward", "NormalizeObservation"]
    assert "sac_config.reward_scaling" in told[0].fix and "sac_config.use_normalization" in told[1].fix


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A task's folder with a wrapper in ``own_wrap.py`` and ``json.py``; it is not the current one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    own_env.write(tmp_path / "task")
    source = (
        "import gymnasium as gym\nclass Clipped(gym.wrappers.ClipReward):\n"
        "    def __init__(self, env, most):\n        super().__init__(env, max_reward=most)\n"
    )
    for name in ("own_wrap", "json"):
        (tmp_path / "task" / f"{name}.py").write_text(source)
    (tmp_path / "task" / "own_broken.py").write_text("import gymnasium\ngymnasium.absent\n")
    with own_env.fresh_imports():
        yield tmp_path / "task"


@pytest.mark.parametrize(
    ("name", "workers"), [("own_wrap:Clipped", 1), ("own_wrap.py:Clipped", 0), ("json:Clipped", 1)]
)
def test_a_wrapper_may_lie_beside_the_task(beside, name, workers):
    pool = {"workers": workers}
    with closing(wrapped({name: {"most": -4.0}}, name="own_env:Own-v0", folder=beside, **pool)) as env:
        env.reset()
        action = {DEFAULT_BEHAVIOUR: np.zeros((2, 1), np.float32)}
        assert env.step(action)[DEFAULT_BEHAVIOUR].reward.tolist() == [-4.0, -4.0]


@pytest.mark.parametrize(("entry", "said"), [
    ({"ClipRewards": None}, "did you mean ClipReward?"),
    ({"Zzz": None}, "not a subclass of gymnasium.Wrapper in gymnasium.wrappers"),
    ({"no.such:Thing": None}, "No module named 'no'"),
    ({"tests.lib.toys:Endless": None}, "no wrapper 'tests.lib.toys:Endless'"),
    ({}, "has 0 names"),
    ({"ClipReward": None, "TimeLimit": None}, "its own entry"),
    ({"own_warp.py:Clipped": None}, "task/own_warp.py"),
    ({"own_wrap.py:Cliped": None}, "did you mean Clipped? there: Clipped"),
    ({"own_env.py:Nothing": None}, "there: none"),
    ({"own_broken.py:X": None}, "AttributeError"),
    ({"RepeatAction": {"times": 2}}, "RepeatAction with {'times': 2}"),
    ({KEEP: {"indices": [7]}}, "the elements of this observation are 0"),
    ({"tests.env.test_wrappers:Blind": None}, 'pip install -e ".[atari]"'),
])  # fmt: skip
def test_a_wrapper_that_cannot_be_found_or_put_on_is_refused(beside, entry, said):
    with pytest.raises((EnvError, UsageError)) as caught:
        wrapped(entry, name="own_env:Own-v0", folder=beside)
    assert said in str(caught.value) and "base_config.wrappers" in str(caught.value)


class Blind(gym.Wrapper):
    """A wrapper that needs a package which is not there."""

    def __init__(self, env: gym.Env) -> None:
        raise gym.error.DependencyNotInstalled("opencv-python package not installed")


def test_kept_elements_are_a_copy_of_the_same_type_in_the_order_of_the_list():
    """Of one float64 array, changed in place."""
    env = KeepElements(gym.make("tests.lib.toys:Counting-v0", disable_env_checker=True), [1, 0])
    first, _ = env.reset(seed=5)
    env.step(np.zeros(1, np.float32))
    assert first.tolist() == [0.0, 5.0] and env.observation_space.dtype == first.dtype == np.float64
    assert env.spec.additional_wrappers[-1].kwargs == {"indices": [1, 0]}


@pytest.mark.parametrize(
    ("name", "indices", "message"),
    [
        ("CartPole-v1", "02", "indices is '02'"),
        ("CartPole-v1", [0, 4], r"is \[0, 4\]; the elements of this observation are 0 to 3"),
        ("CartPole-v1", [True, 1.0], r"is \[True, 1.0\]"),
        ("FrozenLake-v1", [0], "a Box with one dimension|Box with one"),
    ],
)
def test_what_cannot_be_kept_is_refused(name: str, indices: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KeepElements(gym.make(name), indices)


class Game(gym.Env):
    """A game that writes down what it is told; it ends with the action ``over``."""

    observation_space = gym.spaces.Box(0.0, 9.0, (1,))
    action_space = gym.spaces.Discrete(4)

    def __init__(self, second: str, over: int | None = None) -> None:
        self.second, self.over, self.told = second, over, []

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", self.second, "RIGHT", "LEFT"]

    def reset(self, *, seed=None, options=None):
        self.told.append(("reset", seed))
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.told.append(action)
        return np.full(1, action, np.float32), 1.0, action == self.over, False, {}


@pytest.mark.parametrize(
    ("game", "told", "seen"),
    [
        (Game("FIRE"), [("reset", 5), 1, 2], 2),
        (Game("UP"), [("reset", 5)], 0),
        (Game("FIRE", over=1), [("reset", 5), 1, ("reset", None), 2], 2),
        (Game("FIRE", over=2), [("reset", 5), 1, 2, ("reset", None)], 0),
    ],
)
def test_an_episode_begins_with_fire_where_there_is_such_a_button(game, told, seen):
    obs, _ = PressFire(game).reset(seed=5)
    assert game.told == told and obs.item() == seen


@pytest.mark.parametrize(("error", "extra"), [
    (ModuleNotFoundError("No module named 'ale_py'"), "atari"),
    (gym.error.DependencyNotInstalled("Box2D is not installed"), "box2d"),
    (ImportError("No module named 'mine'"), None),
    (ValueError("ale_py is too loud"), None),
])  # fmt: skip
def test_a_missing_package_is_told_with_its_extra(error, extra):
    command = f'in the project\'s folder: {sys.executable} -m pip install -e ".[{extra}]"'
    assert advice(error, "else") == (command if extra else "else")


def test_extras_exist_and_are_named_as_they_can_be_had(root: Path, monkeypatch, tmp_path):
    pyproject = (root / "pyproject.toml").read_text("utf-8")
    assert set(_EXTRAS.values()) <= set(re.findall(r"^(\w+) = \[", pyproject, re.M))
    assert re.findall(r"^dmc = \[\"dm-control\S+; python_version < '([\d.]+)'", pyproject, re.M) == ["3.13"]
    told = (root / "docs/reliability.md").read_text("utf-8").partition("## Extras")[2]
    rows = re.findall(r"^\|( `.+?) \|", told, re.M)
    extras = re.findall(r"^(\w+) = \[", pyproject.partition("[project.optional-dependencies]")[2], re.M)
    assert {*re.findall(r"`(\w+)`", "".join(rows)), "docs", "dev"} == {*extras[: extras.index("dev") + 1]}
    error = ModuleNotFoundError("No module named 'dm_control'")
    monkeypatch.setattr("algorithm.core.extras._CHECKOUT", tmp_path / "pyproject.toml")
    assert advice(error, "").endswith('-m pip install "advanced-soft-actor-critic[dmc]"')


def test_simulators_that_print_are_silenced():
    """In a process of its own: they print when they are imported, and when one first connects."""
    program = (
        "import numpy as np\nfrom algorithm.env.gym import GymRecipe\n"
        "for name in ('pybullet_envs_gymnasium:InvertedPendulumSwingupBulletEnv-v0', 'ale_py:ALE/Pong-v5'):\n"
        "    env = GymRecipe(env_id=name, env_args={})(0)\n"
        "    env.reset(0); env.step(np.eye(env.spec.action.size, dtype=np.float32)[0]); env.close()\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path.cwd())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("workers", [0, 1])
def test_wrappers_reach_every_environment_wherever_it_runs(workers):
    """CartPole has a vector class, which would know nothing of them."""
    pool = {"workers": workers}
    with closing(wrapped({KEEP: {"indices": [2, 0]}}, name="CartPole-v1", **pool)) as env:
        obs = env.reset()[DEFAULT_BEHAVIOUR].obs["obs"]
    whole = gym.make("CartPole-v1")
    for index in range(2):
        np.testing.assert_array_equal(obs[index], whole.reset(seed=10 * index)[0][[2, 0]])


def test_silence_holds_for_code_that_knows_no_python_and_ends_with_an_exception(capfd):
    with pytest.raises(ZeroDivisionError), silence():
        os.write(1, b"descriptor\n")
        subprocess.run(["sh", "-c", "echo child; echo child >&2"], check=True)
        1 / 0  # noqa: B018
    print("after")
    assert capfd.readouterr() == ("after\n", "")
