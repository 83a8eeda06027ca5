"""The Gymnasium adapter: seeds, ends of episodes, windows, pictures, and what it refuses."""

import importlib
import os
import sys
from contextlib import closing
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest

from algorithm.core.errors import EnvError, UsageError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import VecEnv
from algorithm.env.gym import GymRecipe
from algorithm.env.objects import source_of
from algorithm.env.registered import reward_threshold
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest

SEEDS = episode_seeds(7, "train")


def make(name: str, **options: Any) -> VecEnv:
    return make_vec_env(EnvRequest("GYM", name, seed_of=SEEDS, **options))


def step(env: VecEnv, n: int = 1, t: int = 0):
    spec = env.specs[DEFAULT_BEHAVIOUR].action
    flat, *_ = spec.random(np.random.default_rng(t), spec.all_allowed(n))
    return env.step({DEFAULT_BEHAVIOUR: flat})[DEFAULT_BEHAVIOUR]


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


@pytest.mark.fault("F12")
@pytest.mark.parametrize(("name", "kind", "what"), [
    ("NoSuchTask-v0", "GYM", "base_config.env_name"),
    ("no.such.module:Task-v0", "GYM", "env_name"),
    ("tests.lib.toys_objects:Several", "GYM", "several agents"),
    ("x", "OTHER", "built in: UNITY, GYM, DM_CONTROL, PETTINGZOO, TENSOR, ENVPOOL, PLAYGROUND, BRAX, OBJECT"),
])  # fmt: skip
def test_what_does_not_exist_says_what_to_check(name, kind, what):
    with pytest.raises((EnvError, UsageError)) as caught:
        make_vec_env(EnvRequest(kind, name, seed_of=SEEDS))
    assert what in str(caught.value)


def register(monkeypatch: pytest.MonkeyPatch, **entries: Any) -> None:
    monkeypatch.setitem(gym.registry, "Own-v0", gym.envs.registration.EnvSpec("Own-v0", **entries))


@pytest.mark.fault("F12")
@pytest.mark.parametrize("n", [1, 2])
def test_a_package_that_is_missing_is_told_with_what_brings_it(monkeypatch, n):
    """Alone, and in a vector class."""

    def missing(**_: object) -> None:
        raise gym.error.DependencyNotInstalled("Box2D is not installed")

    register(monkeypatch, entry_point=missing, vector_entry_point=missing)
    with pytest.raises(EnvError, match=r'pip install -e "\.\[box2d\]"'):
        make("Own-v0", n=n)


@pytest.mark.fault("F12")
@pytest.mark.parametrize(("spaces", "n", "what"), [
    ({}, 1, "the environment has no observation_space"),
    ({"observation_space": gym.spaces.Discrete(2), "action_space": 2}, 1, "a builtins.int is no"),
    ({"observation_space": gym.spaces.Dict(a=gym.spaces.Discrete(2)), "possible_agents": ["a"],
      "observation_spaces": {}}, 1, "several agents"),
    ({"num_envs": 2, "single_observation_space": gym.spaces.Discrete(2)}, 2, "no single_action_space"),
])  # fmt: skip
def test_an_environment_without_spaces_is_told_what_to_write(monkeypatch, spaces, n, what):
    base = gym.Env if n == 1 else gym.vector.VectorEnv
    kind = "entry_point" if n == 1 else "vector_entry_point"
    register(monkeypatch, **{kind: lambda **_: type("Bare", (base,), spaces)()})
    with pytest.raises(EnvError) as caught:
        make("Own-v0", n=n)
    assert what in str(caught.value)


def test_what_counts_as_solved_is_what_the_registry_says():
    assert reward_threshold("CartPole-v1", []) == 475.0
    assert reward_threshold("CartPole-v1", [{"TimeAwareObservation": None}]) == 475.0
    assert reward_threshold("CartPole-v1", [{"TransformReward": {"func": None}}]) is None
    assert reward_threshold("Pendulum-v1", []) is reward_threshold("NoSuchTask-v0", []) is None


@pytest.mark.parametrize(("name", "options", "own"), [
    ("toys_vector:DiaryVector-v0", {"n": 1}, True),  # there is no single environment of that name
    ("toys:Counting-v0", {"n": 2}, True),
    ("toys:Counting-v0", {"n": 1}, False),
    ("toys:Counting-v0", {"n": 2, "workers": 1}, False),
    ("toys:Counting-v0", {"n": 2, "wrappers": [{"ClipReward": {"max_reward": 1.0}}]}, False),
])  # fmt: skip
def test_an_environments_own_vector_class_is_used_for_several_in_this_process(
    monkeypatch, name, options, own
):
    importlib.import_module("tests.lib.toys")
    monkeypatch.setattr(
        gym.registry["Counting-v0"], "vector_entry_point", "tests.lib.toys_vector:DiaryVector"
    )
    with closing(make(f"tests.lib.{name}", **options)) as env:
        assert ("DiaryVector" in env.arrangement) == own


class Painted(gym.Env):
    """Paints its step into a picture, always the same one; ``picture`` says how it fails.

    ``open`` lists the modes of those that were made and not closed. A window cannot be opened.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 12}  # noqa: RUF012 - as gymnasium has it
    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    open: ClassVar[list[str | None]] = []

    def __init__(self, render_mode: str | None = None, picture: str = "") -> None:
        self.render_mode, self._how = render_mode, picture
        self._picture = np.zeros((4, 6, 3), np.uint8)
        self.open.append(render_mode)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        if self.render_mode == "human":
            raise RuntimeError("no video device")
        self._picture[:] = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self._picture += 1
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def render(self) -> Any:
        if self._how == "raises":
            raise RuntimeError("no light")
        return {"grey": self._picture[..., 0], "none": None}.get(self._how, self._picture)

    def close(self) -> None:
        self.open.remove(self.render_mode)


gym.register("Painted-v0", entry_point=Painted)
PAINTED = "tests.env.test_gym:Painted-v0"


@pytest.mark.filterwarnings("ignore:.*render_mode")
@pytest.mark.parametrize(("name", "options", "why"), [
    (PAINTED, {"render": True}, "RuntimeError: no video device"),
    ("tests.lib.toys:Counting-v0", {"render": True}, "unexpected keyword argument 'render_mode'"),
    ("pybullet_envs_gymnasium:HopperBulletEnv-v0", {"render": True}, "DISPLAY is not set"),
    ("tests.lib.toys:Endless-v0", {"video": True}, "unexpected keyword argument 'render_mode'"),
])  # fmt: skip
def test_what_cannot_be_shown_or_filmed_says_so_before_anything_runs(monkeypatch, name, options, why):
    """Without a display PyBullet would end the process, with what it prints silenced."""
    monkeypatch.delenv("DISPLAY", raising=False)
    with pytest.raises(EnvError, match="could not be") as caught:
        make(name, n=2, **options)
    assert why in caught.value.why and f"--{next(iter(options))}" in caught.value.fix
    assert Painted.open == []


@pytest.mark.parametrize(("name", "shape", "fps"), [
    ("CartPole-v1", (400, 600, 3), 50),  # copies of its own vector class would give none
    ("pybullet_envs_gymnasium:HopperBulletEnv-v0", (240, 320, 3), 60),
])  # fmt: skip
def test_an_environment_does_not_notice_that_it_is_filmed(name, shape, fps):
    pictures = []
    limited = [{"TimeLimit": {"max_episode_steps": 20}}]
    with closing(make(name, n=2, video=True)) as env, closing(make(name, n=2, wrappers=limited)) as unseen:
        assert env.fps == fps and unseen.render() is None
        env.reset(), unseen.reset()
        for t in range(12):
            filmed, plain = step(env, 2, t), step(unseen, 2, t)
            assert np.array_equal(filmed.reward, plain.reward)
            assert all(np.array_equal(filmed.obs[k], plain.obs[k]) for k in plain.obs)
            if t % 4 == 0:
                pictures.append(env.render())
    assert {(picture.shape, picture.dtype.name) for picture in pictures} == {(shape, "uint8")}
    assert all(picture.std() > 0 for picture in pictures), "there is something to see"
    assert any((picture != pictures[0]).any() for picture in pictures), "and it moves"


@pytest.mark.parametrize(("picture", "why"), [
    ("raises", "RuntimeError: no light"),
    ("grey", r"render returned uint8 of shape \(4, 6\)"),
    ("none", r"render returned object of shape \(\)"),
])  # fmt: skip
def test_a_picture_that_is_none_is_told(picture, why):
    with closing(make(PAINTED, video=True, env_args={"picture": picture})) as env:
        env.reset()
        with pytest.raises(EnvError, match=why):
            env.render()


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize(("call", "code"), [
    ("step", lambda self, action: (0, 0.0, False, {})),
    ("step", lambda self, action: (0, 0.0, False, False, None)),
    ("step", lambda self, action: None),
    ("reset", lambda self, *, seed=None, options=None: 0),
    ("reset", lambda self, *, seed=None, options=None: (0, None)),
    ("reset", lambda self: (0, {})),
])  # fmt: skip
def test_what_is_unlike_gymnasium_is_told_in_one_sentence_and_not_tried_again(call, code, limited):
    """Within a wrapper that unpacks a step, too."""
    parts = {"observation_space": gym.spaces.Discrete(2), "action_space": gym.spaces.Discrete(2)}
    sound = {"reset": lambda self, *, seed=None, options=None: (0, {})}
    own = type("Own", (gym.Env,), parts | sound | {call: code})
    source = source_of((lambda: gym.wrappers.TimeLimit(own(), 5)) if limited else own)
    pool = {"on_fault": lambda fault: pytest.fail(f"tried again: {fault.line}")}
    env = make_vec_env(EnvRequest("OBJECT", source, seed_of=SEEDS, **pool))
    with closing(env), pytest.raises(EnvError) as caught:
        env.reset()
        step(env)
    assert call in caught.value.why and "\n" not in caught.value.why


def test_options_of_a_reset_reach_the_environment():
    made = GymRecipe(env_id="tests.lib.toys:Counting-v0", env_args={}, options={"mass": 3.0})(0)
    made.reset(seed=1)
    assert made._env.unwrapped.options == {"mass": 3.0}


def test_only_the_first_copy_has_a_window(monkeypatch):
    monkeypatch.setattr(Painted, "reset", lambda self, **_: (np.zeros(1, np.float32), {}))
    with closing(make(PAINTED, n=3, render=True)):
        assert Painted.open == ["human", None, None]
    assert Painted.open == []


def test_a_picture_is_of_copy_0_and_stays_as_it_is():
    with closing(make(PAINTED, n=2, video=True)) as env:
        env.reset()
        step(env, 2)
        env.reset([1])
        before = env.render()
        step(env, 2)
        assert (before == 1).all() and (env.render() == 2).all() and env.fps == 12


@pytest.mark.filterwarnings("ignore:.*render_mode")
def test_a_mode_that_is_not_offered_is_refused(monkeypatch):
    monkeypatch.setattr(Painted, "metadata", {"render_modes": ["human"]})
    with pytest.raises(EnvError, match=r"its render_modes are \['human'\]"):
        make(PAINTED, video=True)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a screen")
@pytest.mark.parametrize(("screen", "driver"), [("", "dummy"), (":0", "the user's"), (":0", None)])
def test_without_a_screen_sdl_is_not_asked_for_one(monkeypatch, screen, driver):
    """It would look for one, and complain on the terminal."""
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", driver or "")
    if driver != "the user's":
        monkeypatch.delenv("SDL_VIDEODRIVER")
    make(PAINTED, video=True).close()
    assert os.environ.get("SDL_VIDEODRIVER") == driver
