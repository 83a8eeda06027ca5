"""The Gymnasium adapter: spaces, bounds, seeds, ends of episodes, and what it refuses."""

from __future__ import annotations

import importlib
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest

from algorithm.core.errors import EnvError, UsageError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.gym import GymEnv, GymRecipe, reward_threshold
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions

SEEDS = episode_seeds(7, "train")


def counting(n: int = 1, **args: object):
    env = make_vec_env("GYM", "tests.toys:Counting-v0", env_args=args, n=n, seed_of=SEEDS)
    return env, env.reset()[DEFAULT_BEHAVIOUR]


def step(env, n: int = 1, u: float = 0.0):
    width = env.specs[DEFAULT_BEHAVIOUR].action.size
    return env.step({DEFAULT_BEHAVIOUR: np.full((n, width), u, np.float32)})[DEFAULT_BEHAVIOUR]


def test_an_episode_ends_with_its_true_last_observation():
    env, first = counting()
    for episode in range(12):
        seed = SEEDS(0, episode)
        assert first.obs["obs"][0].tolist() == [seed % 1000, 0.0]
        for _ in range(3 + seed % 5):
            result = step(env)
        assert result.final.obs["obs"][0].tolist() == [seed % 1000, 3 + seed % 5]
        assert result.terminated[0] == (seed % 2 == 0)
        assert result.truncated[0] == (seed % 2 == 1)
        assert result.reward[0] == 3 + seed % 5 + 1.0  # u = 0 is the middle of [−2, 4]
        first = result


def test_copies_have_seeds_of_their_own_and_any_episode_can_be_replayed():
    env, first = counting(3)
    assert first.obs["obs"][:, 0].tolist() == [SEEDS(i, 0) % 1000 for i in range(3)]
    again = env.reset([1], episode=5)[DEFAULT_BEHAVIOUR]
    assert again.ids.tolist() == [1]
    assert again.obs["obs"][0, 0] == SEEDS(1, 5) % 1000


def test_seeds_differ_between_purposes_copies_episodes_and_runs():
    seeds = {
        episode_seeds(run, purpose)(index, episode)
        for run in (1, 2)
        for purpose in ("train", "evaluate")
        for index in range(5)
        for episode in range(50)
    }
    assert len(seeds) == 2 * 2 * 5 * 50
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_reset_options_reach_the_environment():
    env = gym.make("tests.toys:Counting-v0")
    GymEnv(env, options={"mass": 2.0}).reset(seed=1)
    assert env.unwrapped.options == {"mass": 2.0}
    made = GymRecipe(env_id="tests.toys:Counting-v0", env_args={}, options={"mass": 3.0})(0)
    made.reset(seed=1)
    assert made._env.unwrapped.options == {"mass": 3.0}


@pytest.mark.fault("F12")
@pytest.mark.parametrize(("fails", "fragments"), [
    ("reset", ["failed in reset", "the door is locked", "environment 0, episode 0"]),
    ("step", ["failed in step", "the wheel came off", "step 4 of the episode", "action [0]"]),
    ("shape", ["observation 'obs' has shape ()", "its space says (1,)"]),
])  # fmt: skip
def test_failures_name_the_copy_the_episode_and_the_step(fails, fragments):
    env = make_vec_env(
        "GYM", "tests.toys:Broken-v0", env_args={"fails": fails}, seed_of=SEEDS, pool=PoolOptions(restarts=0)
    )
    with pytest.raises(EnvError) as caught:
        env.reset()
        for _ in range(5):
            step(env)
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert caught.value.exit_code == 4


@pytest.mark.fault("F12")
@pytest.mark.parametrize("name", ["NoSuchTask-v0", "no.such.module:Task-v0"])
def test_an_unknown_environment_says_what_to_check(name):
    with pytest.raises(EnvError, match="could not be made") as caught:
        make_vec_env("GYM", name, seed_of=SEEDS)
    assert "env_name" in str(caught.value)


@pytest.mark.fault("F12")
@pytest.mark.parametrize("n", [1, 2])
def test_a_package_that_is_missing_is_told_with_what_brings_it(monkeypatch, n):
    """Alone, and in a vector class."""

    def missing(**_: object) -> None:
        raise gym.error.DependencyNotInstalled("Box2D is not installed")

    args = {"entry_point": missing, "vector_entry_point": missing}
    monkeypatch.setitem(gym.registry, "Absent-v0", gym.envs.registration.EnvSpec("Absent-v0", **args))
    with pytest.raises(EnvError, match=r'pip install -e "\.\[box2d\]"'):
        make_vec_env("GYM", "Absent-v0", n=n, seed_of=SEEDS)


@pytest.mark.fault("F12")
@pytest.mark.parametrize(("spaces", "n", "what"), [
    ({}, 1, "the environment has no observation_space"),
    ({"observation_space": gym.spaces.Discrete(2), "action_space": 2}, 1, "a builtins.int is no"),
    ({"num_envs": 2, "single_observation_space": gym.spaces.Discrete(2)}, 2, "no single_action_space"),
])  # fmt: skip
def test_an_environment_without_spaces_is_told_what_to_write(monkeypatch, spaces, n, what):
    base = gym.Env if n == 1 else gym.vector.VectorEnv
    own = {"entry_point" if n == 1 else "vector_entry_point": lambda **_: type("Bare", (base,), spaces)()}
    monkeypatch.setitem(gym.registry, "Bare-v0", gym.envs.registration.EnvSpec("Bare-v0", **own))
    with pytest.raises(EnvError, match="has no") as caught:
        make_vec_env("GYM", "Bare-v0", n=n, seed_of=SEEDS)
    assert what in str(caught.value) and "_space = gymnasium.spaces." in caught.value.fix


def test_what_counts_as_solved_is_what_the_registry_says():
    assert reward_threshold("CartPole-v1", []) == 475.0
    assert reward_threshold("CartPole-v1", [{"TimeAwareObservation": None}]) == 475.0
    assert reward_threshold("CartPole-v1", [{"TransformReward": {"func": None}}]) is None
    assert reward_threshold("Pendulum-v1", []) is reward_threshold("NoSuchTask-v0", []) is None


def test_an_unknown_suite_is_refused():
    with pytest.raises(UsageError, match="built in: UNITY, GYM, DM_CONTROL"):
        make_vec_env("OTHER", "x", seed_of=SEEDS)


@pytest.mark.parametrize(("options", "arrangement"), [
    ({"n": 3}, "3 in DiaryVector (next-step autoreset)"),
    ({"n": 1}, "1 in DiaryVector (next-step autoreset)"),  # there is no single environment of that name
])  # fmt: skip
def test_an_environments_own_vector_class_is_used(options, arrangement):
    env = make_vec_env("GYM", "tests.toys_vector:DiaryVector-v0", seed_of=SEEDS, **options)
    assert env.arrangement == arrangement
    env.close()


@pytest.mark.parametrize(("options", "own"), [
    ({"n": 2}, True),
    ({"n": 1}, False),
    ({"n": 2, "pool": PoolOptions(workers=1)}, False),
    ({"n": 2, "wrappers": [{"ClipReward": {"max_reward": 1.0}}]}, False),
])  # fmt: skip
def test_but_not_for_one_copy_nor_in_workers_nor_under_wrappers(monkeypatch, options, own):
    importlib.import_module("tests.toys")
    spec = gym.registry["Counting-v0"]
    monkeypatch.setattr(spec, "vector_entry_point", "tests.toys_vector:DiaryVector")
    env = make_vec_env("GYM", "tests.toys:Counting-v0", seed_of=SEEDS, **options)
    assert ("DiaryVector" in env.arrangement) == own
    env.close()


class Windowed(gym.Env):
    """Opens its window in the first reset, which fails; ``open`` lists what was made and not closed."""

    open: ClassVar[list[str | None]] = []

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space, self.action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)
        self.render_mode = render_mode
        self.open.append(render_mode)

    def reset(self, **_: object) -> tuple[int, dict]:
        if self.render_mode == "human":
            raise RuntimeError("no video device")
        return 0, {}

    def close(self) -> None:
        self.open.remove(self.render_mode)


gym.register("Windowed-v0", entry_point=Windowed)


@pytest.mark.parametrize(("name", "why"), [
    ("tests.env.test_gym:Windowed-v0", "RuntimeError: no video device"),
    ("tests.toys:Counting-v0", "unexpected keyword argument 'render_mode'"),
    ("pybullet_envs_gymnasium:InvertedPendulumSwingupBulletEnv-v0", "DISPLAY is not set"),
])  # fmt: skip
def test_what_cannot_be_shown_says_so_before_anything_runs(monkeypatch, name, why):
    """Without a display PyBullet would end the process, with what it prints silenced."""
    monkeypatch.delenv("DISPLAY", raising=False)
    with pytest.raises(EnvError, match="could not be shown") as caught:
        make_vec_env("GYM", name, n=2, render=True, seed_of=SEEDS)
    for fragment in (name, why, "'render_mode': 'human'", "leave out --render"):
        assert fragment in str(caught.value)
    assert caught.value.exit_code == 4
    assert Windowed.open == []


def test_only_the_first_copy_has_a_window(monkeypatch):
    monkeypatch.setattr(Windowed, "reset", lambda self, **_: (0, {}))
    env = make_vec_env("GYM", "tests.env.test_gym:Windowed-v0", n=3, render=True, seed_of=SEEDS)
    assert Windowed.open == ["human", None, None]
    env.close()
    assert Windowed.open == []


def test_what_the_arcade_prints_stays_out_of_the_terminal(capfd):
    GymRecipe(env_id="ale_py:ALE/Pong-v5", env_args={})(0).close()
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
