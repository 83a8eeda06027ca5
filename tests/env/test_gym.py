"""The Gymnasium adapter: spaces, bounds, seeds, ends of episodes, and what it refuses."""

from __future__ import annotations

import importlib

import gymnasium as gym
import numpy as np
import pytest

from algorithm.env.gym import GymEnv, GymRecipe
from algorithm.env.registry import make_vec_env
from algorithm.env.spaces import BoxActions, obs_spec
from algorithm.errors import EnvError
from algorithm.run.seeding import episode_seeds
from algorithm.spec import DEFAULT_BEHAVIOUR

SEEDS = episode_seeds(7, "train")


def counting(n: int = 1, **args: object):
    env = make_vec_env("GYM", "tests.toys:Counting-v0", env_args=args, n=n, seed_of=SEEDS)
    return env, env.reset()[DEFAULT_BEHAVIOUR]


def step(env, n: int = 1, u: float = 0.0):
    width = env.specs[DEFAULT_BEHAVIOUR].action.size
    return env.step({DEFAULT_BEHAVIOUR: np.full((n, width), u, np.float32)})[DEFAULT_BEHAVIOUR]


def test_actions_span_exactly_the_bounds():
    box = gym.spaces.Box(np.array([-2.0, 0.0]), np.array([4.0, 1.0]), dtype=np.float32)
    actions = BoxActions(box, "x")
    scaled = actions.to_env(np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]], np.float32))
    assert scaled.tolist() == [[-2.0, 0.0], [1.0, 0.5], [4.0, 1.0]]
    assert scaled.dtype == np.float32


@pytest.mark.parametrize(("low", "high"), [(-1.1, 0.3), (0.1, 0.7), (-3e-3, 1e6)])
def test_rounding_never_leaves_the_box(low, high):
    box = gym.spaces.Box(low, high, (1,), np.float32)
    u = np.tanh(np.linspace(-7, 7, 4001, dtype=np.float32))[:, None]
    assert all(box.contains(action) for action in BoxActions(box, "x").to_env(u))


def test_actions_take_the_shape_of_the_space():
    box = gym.spaces.Box(-1.0, 1.0, (2, 3), np.float64)
    actions = BoxActions(box, "x")
    assert actions.spec.continuous == 6
    assert actions.to_env(np.zeros((5, 6), np.float32)).shape == (5, 2, 3)


def test_what_cannot_be_served_is_refused_with_the_reason():
    for space, reason in [
        (gym.spaces.Box(-np.inf, np.inf, (1,)), "no finite bounds"),
        (gym.spaces.Discrete(3), "not available in this version"),
    ]:
        with pytest.raises(EnvError, match=reason) as caught:
            BoxActions(space, "Task-v0")
        assert "Task-v0" in str(caught.value)
    for space in (gym.spaces.Discrete(3), gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)):
        with pytest.raises(EnvError, match="not available in this version"):
            obs_spec(space, "Task-v0")
    assert obs_spec(gym.spaces.Box(-1, 1, (4, 5), np.float64), "x").shapes == ((4, 5),)


def test_observations_are_float32_copies():
    """The environment changes its one array in place; what was handed out must not change with it."""
    env, first = counting()
    second = step(env)
    assert first.obs["obs"].dtype == np.float32
    assert first.obs["obs"][0, 1] == 0.0
    assert second.obs["obs"][0, 1] == 1.0


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


def test_env_args_reach_the_constructor():
    env, _ = counting(width=3)
    assert env.specs[DEFAULT_BEHAVIOUR].action.continuous == 3


@pytest.mark.fault("F12")
@pytest.mark.parametrize(("fails", "fragments"), [
    ("reset", ["failed in reset", "the door is locked", "copy 0, episode 0"]),
    ("step", ["failed in step", "the wheel came off", "step 4 of the episode", "action [0]"]),
    ("shape", ["observation has shape ()", "its space says (1,)"]),
])  # fmt: skip
def test_failures_name_the_copy_the_episode_and_the_step(fails, fragments):
    env = make_vec_env("GYM", "tests.toys:Broken-v0", env_args={"fails": fails}, seed_of=SEEDS, restarts=0)
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


def test_an_unknown_suite_is_refused():
    with pytest.raises(EnvError, match="set it to one of GYM"):
        make_vec_env("UNITY", "x", seed_of=SEEDS)


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
    ({"n": 2, "workers": 1}, False),
    ({"n": 2, "wrappers": [{"ClipReward": {"max_reward": 1.0}}]}, False),
])  # fmt: skip
def test_but_not_for_one_copy_nor_in_workers_nor_under_wrappers(monkeypatch, options, own):
    importlib.import_module("tests.toys")
    spec = gym.registry["Counting-v0"]
    monkeypatch.setattr(spec, "vector_entry_point", "tests.toys_vector:DiaryVector")
    env = make_vec_env("GYM", "tests.toys:Counting-v0", seed_of=SEEDS, **options)
    assert ("DiaryVector" in env.arrangement) == own
    env.close()
