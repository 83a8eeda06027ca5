"""Pictures of environment 0, and that taking them changes nothing."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from algorithm.core.errors import EnvError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import VecEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import PoolOptions

SEEDS = episode_seeds(5, "evaluate")


class Painted(gym.Env):
    """Paints its step into a picture, always the same one; ``picture`` says how it fails."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012 - as gymnasium has it
    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode: str | None = None, picture: str = "") -> None:
        self.render_mode, self._how = render_mode, picture
        self._picture = np.zeros((4, 6, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._picture[:] = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self._picture += 1
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def render(self) -> Any:
        if self._how == "raises":
            raise RuntimeError("no light")
        return {"grey": self._picture[..., 0], "none": None}.get(self._how, self._picture)


gym.register("Painted-v0", entry_point=Painted)


def make(name: str, **options: Any) -> VecEnv:
    return make_vec_env("GYM", name, n=2, seed_of=SEEDS, **options)


def act(env: VecEnv, t: int) -> np.ndarray:
    spec = env.specs[DEFAULT_BEHAVIOUR].action
    return spec.random(np.random.default_rng(t), spec.all_allowed(2))[0]


@pytest.mark.parametrize(("name", "shape", "fps"), [
    ("CartPole-v1", (400, 600, 3), 50),  # copies of its own vector class would give none
    ("Pendulum-v1", (500, 500, 3), 30),
    ("pybullet_envs_gymnasium:InvertedPendulumSwingupBulletEnv-v0", (240, 320, 3), 60),
    ("pybullet_envs_gymnasium:HopperBulletEnv-v0", (240, 320, 3), 60),
])  # fmt: skip
def test_an_environment_does_not_notice_that_it_is_filmed(name, shape, fps):
    pictures = []
    limited = [{"TimeLimit": {"max_episode_steps": 20}}]
    with closing(make(name, video=True)) as env, closing(make(name, wrappers=limited)) as unseen:
        assert env.fps == fps and unseen.render() is None
        first, plain = (e.reset()[DEFAULT_BEHAVIOUR] for e in (env, unseen))
        for t in range(15):
            assert all(np.array_equal(first.obs[k], plain.obs[k]) for k in first.obs)
            if t % 4 == 0:
                pictures.append(env.render())
            act_on = {DEFAULT_BEHAVIOUR: act(env, t)}
            first, plain = (e.step(act_on)[DEFAULT_BEHAVIOUR] for e in (env, unseen))
            assert np.array_equal(first.reward, plain.reward)
    assert {(picture.shape, picture.dtype.name) for picture in pictures} == {(shape, "uint8")}
    assert all(picture.std() > 0 for picture in pictures), "there is something to see"
    assert any((picture != pictures[0]).any() for picture in pictures), "and it moves"


def test_a_picture_is_of_copy_0_and_stays_as_it_is():
    with closing(make("tests.env.test_film:Painted-v0", video=True)) as env:
        env.reset()
        env.step({DEFAULT_BEHAVIOUR: act(env, 0)})
        env.reset([1])
        before = env.render()
        assert (before == 1).all()
        env.step({DEFAULT_BEHAVIOUR: act(env, 0)})
        assert (before == 1).all() and (env.render() == 2).all()
        assert env.fps == 12


@pytest.mark.parametrize(("picture", "why"), [
    ("raises", "RuntimeError: no light"),
    ("grey", r"a picture is uint8 of shape \(4, 6\)"),
    ("none", r"a picture is object of shape \(\)"),
])  # fmt: skip
def test_a_picture_that_is_none_is_told(picture, why):
    with closing(make("tests.env.test_film:Painted-v0", video=True, env_args={"picture": picture})) as env:
        env.reset()
        with pytest.raises(EnvError, match=why) as caught:
            env.render()
    assert "--video" in caught.value.fix


@pytest.mark.filterwarnings("ignore:.*render_mode")
@pytest.mark.parametrize("name", ["tests.toys:Endless-v0", "tests.toys_vector:Diary-v0"])
def test_an_environment_without_pictures_is_refused_for_a_film(name):
    with pytest.raises(EnvError, match="could not be filmed") as caught:
        make(name, video=True)
    assert "'render_mode': 'rgb_array'" in caught.value.where and "--video" in caught.value.fix
    assert caught.value.exit_code == 4


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is always a screen")
@pytest.mark.parametrize(("screen", "driver"), [("", "dummy"), (":0", "the user's"), (":0", None)])
def test_without_a_screen_sdl_is_not_asked_for_one(monkeypatch, screen, driver):
    """It would look for one, and complain on the terminal."""
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", driver or "")
    if driver != "the user's":
        monkeypatch.delenv("SDL_VIDEODRIVER")
    make("tests.env.test_film:Painted-v0", video=True).close()
    assert os.environ.get("SDL_VIDEODRIVER") == driver


@pytest.mark.filterwarnings("ignore:.*render_mode")
def test_a_mode_that_is_not_offered_is_refused(monkeypatch):
    monkeypatch.setattr(Painted, "metadata", {"render_modes": ["human"]})
    with pytest.raises(EnvError, match=r"its render_modes are \['human'\]"):
        make("tests.env.test_film:Painted-v0", video=True)


def test_pictures_are_taken_in_this_process():
    for other in ({"pool": PoolOptions(workers=1)}, {"render": True}):
        with pytest.raises(ValueError, match="without a window"):
            make("Pendulum-v1", video=True, **other)
