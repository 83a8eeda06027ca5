"""Environments that are objects, and an agent to hold."""

from __future__ import annotations

import copy
import gc
import json
import os
import signal
import sys
import threading
from collections import deque
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import asac
from algorithm.app.command import main
from algorithm.app.env_arguments import env_to_play
from algorithm.env.objects import EnvObject
from algorithm.env.toys.exploration import ToyBits
from algorithm.extras.check.context import CheckLimits
from tests.lib.callbacks import EachStep
from tests.lib.small_disk import child
from tests.lib.toys_objects import Handle, Several, Shared, Walk


class Brittle(Walk):
    """Its copy cannot be played in."""

    def __deepcopy__(self, memo: Any) -> Any:
        return Brittle(-1.0)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        if self.size < 0.0:
            raise RuntimeError("the copy has no simulator")
        return super().step(action)


class Piped(Walk):
    """Its simulator is at the other end of a pipe."""

    def __init__(self) -> None:
        super().__init__()
        here, self.there = Pipe()
        self.ends = deque([{"here": here}])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.ends[0]["here"].send(float(action[0]))
        return super().step([self.there.recv()])


class Unseeded(Walk):
    """Its episodes do not follow from their seeds."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        return super().reset(seed=None)


class Plane(Walk):
    """It shows two numbers instead of one."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        seen, info = super().reset(seed=seed)
        return np.repeat(seen, 2), info


KEYS = {
    "base_config.preset": "plain",
    "base_config.info_keys": ["is_success", "reward/all", "nowhere"],
    "sac_config.save_model_per_step": 40,
    "sac_config.write_summary_per_step": 25,
    "sac_config.start_step": 20,
    "sac_config.batch_size": 8,
    "nn_config.q.dense_n": 8,
    "nn_config.policy.dense_n": 8,
    "eval_config.per_step": 40,
    "eval_config.episodes": 2,
}
ROLLOUTS = {"ppo_config.rollout_step": 16, "ppo_config.num_minibatch": 2, "eval_config.per_step": 40}
SHORT = {"overrides": KEYS, "max_step": 60, "seed": 1, "device": "cpu", "quiet": True}
HELD = {key: value for key, value in SHORT.items() if key != "max_step"}


pytestmark = pytest.mark.usefixtures("cwd")


def networks(run: asac.Run) -> dict[str, torch.Tensor]:
    return run.policy("latest").networks.state_dict()


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys() and [name for name in a if not torch.equal(a[name], b[name])] == []


def with_keys(**keys: object) -> dict:
    given = {name.replace("__", "."): value for name, value in keys.items()}
    return {**SHORT, "overrides": {**KEYS, **given}}


# ---- environments


def test_an_object_trains_bit_for_bit_as_its_name_does():
    named = asac.train("Pendulum-v1", **with_keys(base_config__env_args={"g": 10.0}))
    wanted, fresh = networks(named), partial(gym.make, "Pendulum-v1", g=10.0)
    assert named.evaluate(2) == named.evaluate(2, env=fresh) == named.evaluate(2, env="Pendulum-v1")
    env = gym.make("Pendulum-v1")
    for given in (env, fresh, EnvObject.of(env)):
        run = asac.train(given, **SHORT)
        assert_same(networks(run), wanted)
    assert run.folder.parent.parent.name == "object" and run.folder.parent.name == "Pendulum-v1"
    written = yaml.safe_load((run.folder / "config.yaml").read_text())["base_config"]
    assert (written["env_type"], written["env_name"]) == (
        "OBJECT",
        "gymnasium.envs.classic_control.pendulum.PendulumEnv",
    )
    noted = json.loads((run.folder / "manifest.json").read_text())["env_objects"]
    assert noted["train"] == f"{written['env_name']}, an instance"
    env.step(env.action_space.sample())  # it is open


class Notes(asac.Callback):
    """Logs each step, and notes the rollouts."""

    def __init__(self) -> None:
        self.rollouts: list[int] = []

    def on_step(self, training):
        training.log("own/step", training.step)

    def on_rollout_end(self, training):
        self.rollouts.append(training.step)


def test_a_class_of_ones_own_is_trained_evaluated_filmed_and_exported(tmp_path):
    notes = Notes()
    run = asac.train(Walk, callbacks=[notes], **with_keys(eval_config__video=True))
    assert run.folder.parent == (tmp_path / "models/object/Walk")
    assert list((run.folder / "videos").glob("*.mp4"))
    rows = run.metrics
    steps = [value for value in rows["callback/own/step"] if not np.isnan(value)]
    assert steps == [13.0, 38.0, 55.5], "means of 1 to 25, 26 to 50, 51 to 60"
    for part in ("rollout", "eval"):  # the infos repeat the reward, and it is summed
        assert np.allclose(rows[f"{part}/info/reward/all"], rows[f"{part}/return_mean"], equal_nan=True)
        assert 0 <= np.nanmax(rows[f"{part}/info/is_success"]) <= 1
        assert f"{part}/info/nowhere" not in rows
    assert notes.rollouts == list(range(21, 61))
    run.export("walk.zip")
    obs = np.array([0.5], np.float32)
    action, _ = asac.load("walk.zip", env=Walk).act(obs)
    assert np.array_equal(action, run.policy().act(obs)[0])
    with pytest.raises(asac.NumericalError):
        run.policy().act(np.array([np.nan], np.float32))
    assert isinstance(asac.make_env(Walk, overrides={"base_config.env_args": {"size": 3.0}}), Walk)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_vector_environment_brings_its_own_lanes(mode):
    env = SyncVectorEnv([Walk] * 3, autoreset_mode=mode)
    # The others reset an environment with all, and no single one.
    limit = {"base_config__max_step_each_iter": 7} if mode is AutoresetMode.DISABLED else {}
    run = asac.train(env, **with_keys(**limit))
    assert run.result["steps"] == 60 and not env.closed
    assert yaml.safe_load((run.folder / "config.yaml").read_text())["base_config"]["n_envs"] == 3
    rows = run.metrics
    for part in ("rollout", "eval"):
        assert np.allclose(rows[f"{part}/info/reward/all"], rows[f"{part}/return_mean"], equal_nan=True)
    assert run.resume(max_step=90, device="cpu", quiet=True).result["steps"] == 90


@pytest.mark.parametrize("env", [Shared(), Handle(), Piped(), Brittle(), gym.wrappers.TimeLimit(Handle(), 5)])
def test_an_instance_without_a_copy_needs_another_one(env):
    with pytest.raises(asac.UsageError, match="second environment"):
        asac.train(env, **SHORT)
    assert asac.train(env, eval_env=Walk, **{**SHORT, "max_step": 10}).result["steps"] == 10


def test_a_copy_shares_nothing_and_a_spec_makes_one_where_there_is_no_copy():
    for env in (Walk(2.0), Unseeded(2.0)):
        other = EnvObject.of(env).evaluate()
        assert other.unwrapped is not env and other.unwrapped.size == 2.0
    gym.register("Handle-v0", Handle, max_episode_steps=4)
    env = gym.make("Handle-v0")
    other = EnvObject.of(env).evaluate()
    assert other.unwrapped is not env.unwrapped and other.spec.max_episode_steps == 4


def test_lanes_in_processes_are_made_anew_or_refused_and_stay_usable():
    named = gym.make_vec("Pendulum-v1", num_envs=2, vectorization_mode="async")
    EnvObject.of(named).evaluate.env.close()
    unnamed = AsyncVectorEnv([Walk] * 2)
    with pytest.raises(asac.UsageError, match="second environment"):
        EnvObject.of(unnamed)
    for env in (named, unnamed):
        gc.collect()
        env.reset(seed=0), env.step(env.action_space.sample()), env.close()


def test_what_a_spec_does_not_know_is_copied():
    changed = gym.make("Pendulum-v1")
    changed.unwrapped.g = 3.0
    wrapped = gym.wrappers.vector.RescaleAction(gym.make_vec("Pendulum-v1", num_envs=2), -1.0, 1.0)
    assert EnvObject.of(changed).evaluate().unwrapped.g == 3.0
    assert isinstance(EnvObject.of(wrapped).evaluate.env, gym.wrappers.vector.RescaleAction)


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        (Walk(), {"base_config__n_envs": 2}),
        (Walk(), {"base_config__workers": 1}),
        (Walk(), {"base_config__env_args": {"size": 2.0}}),
        (partial(Walk, threading.Lock()), {"base_config__workers": 1}),
        (SyncVectorEnv([Walk] * 2), {"base_config__n_envs": 3}),
        (SyncVectorEnv([Walk] * 2), {"base_config__wrappers": [{"TimeLimit": {"max_episode_steps": 3}}]}),
        (object(), {}),
        (dict, {}),
        (Several, {}),
    ],
)
def test_what_an_object_cannot_do_is_refused_before_a_run_is_made(given, keys):
    with pytest.raises(asac.UsageError):
        asac.train(given, **with_keys(**keys))
    assert not list(Path("models").glob("object/*/*"))


def test_objects_are_checked(monkeypatch):
    few = partial(CheckLimits, steps=30, compared=5, seconds=0.2)
    monkeypatch.setattr("algorithm.extras.check.command.CheckLimits", few)
    assert asac.check(Walk(), quiet=True)
    assert not asac.check(Plane(), quiet=True), "its step returns one number"


# ---- going on


def test_a_killed_run_goes_on_with_its_object_as_if_nothing_had_happened(capsys):
    strike = EachStep(lambda training: training.step == 55 and os.kill(os.getpid(), signal.SIGKILL))
    train = partial(asac.train, name="a", callbacks=strike, **{**SHORT, "max_step": 90})
    assert child(lambda: train(Walk())) == signal.SIGKILL
    run = asac.Run("models/object/Walk/a")
    with pytest.raises(asac.UsageError, match="cannot be made from a name"):
        run.resume()
    with pytest.raises(asac.UsageError, match="other observations"):
        run.resume(Plane)
    for flags in (["--resume"], ["--eval=1"]):
        assert main(["object/Walk", "-n", "a", *flags]) == 2
    run.resume(Walk(), device="cpu", quiet=True)
    assert "resumed exactly" in (run.folder / "train.log").read_text()
    assert_same(networks(run), networks(asac.train(Walk, **{**SHORT, "max_step": 90})))
    assert main(["object/Walk", "--report", "a"]) == 0
    assert "asac.Run(" in (run.folder / "report.html").read_text()


class Trained(ToyBits):
    """It notes batches of goals that it is asked for."""

    asked = 0

    def compute_reward(self, achieved_goal, desired_goal, info):
        type(self).asked += np.ndim(achieved_goal) == 2
        return super().compute_reward(achieved_goal, desired_goal, info)


class Played(Trained):
    asked = 0


def test_hindsight_asks_the_environment_that_is_trained_in():
    asac.train(
        partial(gym.wrappers.TimeLimit, Trained(), 12), eval_env=Played, **with_keys(eval_config__max_step=12)
    )
    assert Trained.asked > 5 and Played.asked == 0


def test_a_vector_environment_with_goals_trains_without_hindsight():
    run = asac.train(SyncVectorEnv([lambda: gym.wrappers.TimeLimit(ToyBits(), 12)] * 2), **SHORT)
    assert "a vector environment cannot be split" in (run.folder / "train.log").read_text()


def test_a_task_that_is_played_in_by_name_brings_no_wrappers():
    """A run wraps it in its own."""
    assert "RepeatAction" not in str(env_to_play("gym/mountain_car").evaluate())


# ---- an agent to hold


@pytest.mark.parametrize(("algorithm", "keys"), [("SAC", KEYS), ("PPO", ROLLOUTS)])
def test_to_learn_in_parts_is_to_learn_at_once(algorithm, keys):
    held = {**HELD, "overrides": keys}
    parts = asac.Agent(algorithm, env := Walk(), **held, max_grad_norm=0.5)
    assert repr(parts) == f"Agent({algorithm}, {parts._env_object.train.name}, 0 steps)" and parts.step == 0
    parts.predict(np.zeros(1, np.float32))  # makes the networks that learning begins with
    assert parts.evaluate(Walk(), 1).lengths == (10,) and parts.step == 0
    for steps in (25, 1, 34):
        parts.learn(steps)
        torch.rand(3), np.random.rand(3)  # what others draw meanwhile changes nothing
        parts.evaluate(Walk(), 1)
    assert parts.step == 60 and parts.run.folder.parent.name == "Walk"
    own = "sac_config" if algorithm == "SAC" else "ppo_config"
    once = asac.Agent(algorithm, Walk, **HELD | {"overrides": keys | {f"{own}.max_grad_norm": 0.5}}).learn(60)
    assert_same(parts.networks.state_dict(), once.networks.state_dict())
    assert not env.closed, "it is its owner's"


def test_an_agent_acts_moves_and_is_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["mine.py"])
    agent = asac.Agent("SAC", Walk, **HELD)
    agent.learn(30)
    obs = np.array([0.5], np.float32)
    action, state = agent.predict(obs)
    both, _ = agent.predict(np.stack([obs, obs]), None, episode_start=[True, False])
    assert action.shape == (1,) and np.allclose(both[0], action, atol=1e-6) and state is not None
    assert len({agent.predict(obs, deterministic=False)[0].item() for _ in range(3)}) == 3, "sampled"
    before = copy.deepcopy(agent.networks.state_dict())
    zipped, folder = agent.save(tmp_path / "small.ZIP"), agent.save(tmp_path / "whole")
    assert_same(asac.Agent.load(zipped, Walk).networks.state_dict(), before)
    with pytest.raises(asac.UsageError, match="an export has no resume"):
        asac.Agent.load(zipped, Walk, quiet=True).learn(10)
    for path in (folder, zipped):
        with pytest.raises(asac.UsageError, match="already") as caught:
            agent.save(path)
        assert ("replace" in caught.value.fix) == (path == zipped), "of a run, with its checkpoints, never"
    (tmp_path / "own").mkdir()
    with pytest.raises(asac.UsageError, match="is not a run"):
        agent.save(tmp_path / "own", replace=True)
    other = asac.Agent.load(folder, Walk, device="cpu", quiet=True).learn(30)
    assert_same(other.networks.state_dict(), agent.learn(30).networks.state_dict())
    agent.learn(1).save(folder, replace=True), agent.save(zipped, replace=True)
    assert {asac.Agent.load(path, Walk).step for path in (folder, zipped)} == {61}
    with pytest.raises(asac.UsageError, match="other observations"):
        agent.set_env(Plane)
    agent.set_env(Walk(2.0))
    assert agent.learn(10).step == 71
    noted = json.loads((agent.run.folder / "manifest.json").read_text())["resumed"]
    assert noted[-1]["env_objects"]["train"] == "tests.lib.toys_objects.Walk, an instance"


def test_keys_are_those_that_are_learned_on_with():
    def rate(agent):
        return agent.run.config.sac_config.learning_rate

    agent = asac.Agent("SAC", Walk, **HELD)
    assert rate(agent.learn(5, learning_rate=0.004)) == rate(agent.learn(5)) == 0.004
    load = partial(asac.Agent.load, agent.run.folder, Walk, device="cpu", quiet=True)
    assert rate(load(learning_rate=0.001).learn(5)) == 0.001
    with pytest.raises(asac.ConfigError):
        load(learning_rat=0.001)
