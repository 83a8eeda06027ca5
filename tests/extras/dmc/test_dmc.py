"""The DeepMind Control suite: spaces, ends, seeds, images, the choice of a renderer, and refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from algorithm.core.errors import EnvError
from algorithm.core.seeding import episode_seeds
from algorithm.core.spec import DEFAULT_BEHAVIOUR
from algorithm.env.base import VecEnv
from algorithm.env.gym import GymEnv
from algorithm.env.registry import make_vec_env
from algorithm.env.request import EnvRequest
from algorithm.extras.dmc.suite import DmControlEnv
from main import main

SEEDS = episode_seeds(3, "train")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is one renderer")


def make(name: str = "cartpole/swingup", n: int = 1, **options: Any) -> VecEnv:
    return make_vec_env(EnvRequest("DM_CONTROL", name, n=n, seed_of=SEEDS, **options))


def rollout(env: VecEnv, steps: int, start: int = 0) -> list[list[Any]]:
    """Observations and rewards of random steps, as numbers."""
    rows, spec = [], env.specs[DEFAULT_BEHAVIOUR].action
    for t in range(start, start + steps):
        flat, *_ = spec.random(np.random.default_rng(t), spec.all_allowed(1))
        result = env.step({DEFAULT_BEHAVIOUR: flat})[DEFAULT_BEHAVIOUR]
        rows.append([value.tolist() for value in (*result.obs.values(), result.reward)])
    return rows


@pytest.mark.parametrize(("name", "shapes", "actions"), [
    ("dm.walker.walk", {"orientations": (14,), "height": (1,), "velocity": (9,)}, 6),
    ("manipulator/bring_ball", {"arm_pos": (16,), "arm_vel": (8,), "touch": (5,), "hand_pos": (4,),
                                "object_pos": (4,), "object_vel": (3,), "target_pos": (4,)}, 5),
])  # fmt: skip
def test_observations_are_vectors_by_name(name, shapes, actions):
    with closing(make(name)) as env:
        spec = env.specs[DEFAULT_BEHAVIOUR]
        assert dict(zip(spec.obs.names, spec.obs.shapes, strict=True)) == shapes
        assert set(spec.obs.dtypes) == {"float32"}
        assert (spec.action.continuous, env.time_limit) == (actions, 1000)


def test_a_film_of_held_actions_plays_as_fast_as_the_simulation():
    with closing(make(wrappers=[{"RepeatAction": {"num_repeats": 4}}])) as env:
        assert env.fps == pytest.approx(25)


@pytest.mark.parametrize("name", ["reacher/easy", "finger/turn_hard"])
def test_an_episode_repeats_bit_for_bit(name):
    """After other episodes, in another instance, and in a process of its own; another seed differs."""
    with closing(make(name)) as env, closing(make(name, workers=1)) as worker:
        env.reset()
        first = rollout(env, 40)
        env.reset(episode=7)
        assert rollout(env, 40) != first
        env.reset(episode=0)
        worker.reset()
        assert rollout(env, 40) == first == rollout(worker, 40)


def test_an_open_episode_goes_on_after_a_resume_and_time_truncates_it():
    limited = {"env_args": {"time_limit": 0.3, "environment_kwargs": {"n_sub_steps": 1}}}
    with closing(make(**limited)) as env, closing(make(**limited)) as resumed:
        assert env.time_limit == 30
        for one in (env, resumed):
            one.reset()
        rollout(env, 77)  # the third episode, of 30 steps each
        assert resumed.resume(env.state()) == {}
        assert rollout(env, 12, start=77) == rollout(resumed, 12, start=77)
        last = env.step({DEFAULT_BEHAVIOUR: np.zeros((1, 1), np.float32)})[DEFAULT_BEHAVIOUR]
        assert (last.terminated.tolist(), last.truncated.tolist()) == ([False], [True])


@pytest.mark.parametrize(("discount", "terminated"), [(0.0, True), (0.5, False)])
def test_a_discount_of_zero_terminates(monkeypatch, discount, terminated):
    env = DmControlEnv("cartpole/swingup")
    env.reset(seed=1)
    monkeypatch.setattr(env._env.task, "get_termination", lambda physics: discount)
    assert env.step(np.zeros(1, np.float32))[2:4] == (terminated, not terminated)
    env.close()
    env.close()  # as often as anybody likes


@pytest.mark.parametrize(("name", "said"), [
    ("dm.cartpole.swngup", "did you mean swingup?"),
    ("cartpol/swingup", "did you mean cartpole?"),
    ("cartpole", "there is no task ''"),
    ("", "no domain ''"),
    ("lqr/lqr_2_1", "no finite bounds"),
])  # fmt: skip
@pytest.mark.fault("F12")
def test_an_unknown_name_is_answered_by_near_ones(name, said):
    with pytest.raises(EnvError) as caught:
        make(name)
    assert said in str(caught.value)


@pytest.mark.parametrize("render_only", [True, False])
def test_images_instead_of_the_vectors_or_beside_them(render_only):
    wrappers = [{"AddRenderObservation": {"render_only": render_only}}]
    arguments = {"render_mode": "rgb_array", "height": 32, "width": 48, "camera_id": "fixed"}
    with closing(make(env_args=arguments, wrappers=wrappers)) as env:
        names = ("obs",) if render_only else ("pixels", "position", "velocity")
        assert set(env.specs[DEFAULT_BEHAVIOUR].obs.names) == set(names)
        first = env.reset()[DEFAULT_BEHAVIOUR].obs[names[0]][0]
        for _ in range(10):
            last = env.step({DEFAULT_BEHAVIOUR: np.ones((1, 1), np.float32)})[DEFAULT_BEHAVIOUR]
        image = last.obs[names[0]][0]
    assert (image.shape, image.dtype) == ((32, 48, 3), np.uint8)
    assert image.std() > 5 and (image != first).any()


def test_a_task_is_the_same_while_it_is_filmed_or_shown(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with closing(make(video=True)) as env, closing(make()) as plain, closing(make(render=True)) as shown:
        for one in (env, plain, shown):
            one.reset()
        for t in range(3):
            assert env.render().shape == (240, 320, 3)
            assert rollout(env, 3, 3 * t) == rollout(plain, 3, 3 * t) == rollout(shown, 3, 3 * t)


def test_a_terrain_is_uploaded_to_a_renderer():
    """quadruped/escape needs one without any image."""
    with closing(make("quadruped/escape")) as env:
        assert all(np.isfinite(values).all() for values in env.reset()[DEFAULT_BEHAVIOUR].obs.values())


@LINUX
@pytest.mark.parametrize(("setting", "code", "result"), [
    (None, "load_suite(renderer=False); load_suite(renderer=True)", "egl egl"),
    ("0", "load_suite(renderer=False)", "0 off"),
    (None, "from dm_control import suite; env = DmControlEnv('cartpole/swingup', render_mode='rgb_array'); "
           "env.reset(seed=1); assert env.render().std() > 5", "egl egl"),
])  # fmt: skip
def test_a_renderer_is_chosen_before_the_first_import(setting, code, result):
    """Only where it is not set: none without images, which a later need still gets."""
    env = {key: value for key, value in os.environ.items() if key not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    env |= {} if setting is None else {"MUJOCO_GL": setting}
    program = (
        f"from algorithm.extras.dmc.suite import load_suite, DmControlEnv; {code}; "
        "from dm_control import _render; import os; print(os.environ.get('MUJOCO_GL'), _render.BACKEND)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == result, done.stderr


@LINUX
@pytest.mark.fault("F12")
def test_a_suite_without_a_renderer_is_refused(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    monkeypatch.setattr("dm_control._render.BACKEND", "off")
    with pytest.raises(EnvError, match="MUJOCO_GL=disabled excludes them"):
        make(env_args={"render_mode": "rgb_array"})


def test_a_task_trains_in_workers(cwd, capsys):
    """By its bare name, from the command line."""
    keys = ("sac_config.start_step=50", "eval_config.episodes=1", "sac_config.replay_ratio=0.05")
    base = ("env_args={time_limit: 0.3}", "n_envs=2", "workers=2")
    sets = [word for text in (*keys, *(f"base_config.{one}" for one in base)) for word in ("-o", text)]
    task = ["dm.cartpole.swingup", "-n=a", "--quiet", "--seed=1", "--device=cpu", "--max_step=80"]
    assert main([*task, *sets]) == 0, capsys.readouterr().err


def test_the_gravity_of_a_task_of_dm_control() -> None:
    env = GymEnv(DmControlEnv("pendulum/swingup"), parameters={"g": "physics.model.opt.gravity.2"})
    bare = env._env.unwrapped
    for gravity in (-1.0, -20.0):
        env.reset(1, np.array([gravity]))
        assert bare.physics.model.opt.gravity[2] == gravity
    env.close()
