"""lerobot's environments, with a stand-in for lerobot 0.4.4 that keeps its contract."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from algorithm.core.errors import UsageError
from algorithm.env.config import InterventionKeys
from algorithm.env.gym import GymEnv
from algorithm.extras.robots.lerobot import LeRobot

NAMES = ("OBSERVATION", "ACTION", "REWARD", "DONE", "TRUNCATED", "INFO", "COMPLEMENTARY_DATA")
Key = SimpleNamespace(**{name: name.lower() for name in NAMES})
"""Keys of a transition."""

FLAG = "is_intervention"


def transition(**facts):
    return {Key.ACTION: None, Key.REWARD: 0.0, Key.DONE: False, Key.TRUNCATED: False, **facts}


def take_step(env, before, action, of_env, of_action):
    """A step of lerobot: the environment's info has the last word, and the action is the processed one."""
    sent = of_action({**before, Key.ACTION: action})
    obs, reward, terminated, truncated, info = env.step(sent[Key.ACTION])
    return of_env(
        {
            **sent,
            Key.OBSERVATION: obs,
            Key.REWARD: reward + sent[Key.REWARD],
            Key.DONE: terminated or sent[Key.DONE],
            Key.TRUNCATED: truncated or sent[Key.TRUNCATED],
            Key.INFO: {**sent[Key.INFO], **info},
        }
    )


class Arm(gym.Env):
    """A robot of two joints with a camera. Its info says, as lerobot's, that no person acts."""

    action_space = gym.spaces.Box(-1.0, 1.0, (2,))
    closed = False

    def __init__(self):
        self.joints, self.executed = np.zeros(2, np.float32), []

    def reset(self, *, seed=None, options=None):
        self.joints = np.zeros(2, np.float32)
        return self._seen(), {FLAG: False, "raw_joint_positions": {"a.pos": 0.0, "b.pos": 0.0}}

    def step(self, action):
        self.executed.append(action.tolist())
        self.joints = self.joints + action.numpy()
        return self._seen(), 0.0, False, False, {FLAG: False}

    def close(self):
        self.closed = True

    def _seen(self):
        return {"agent_pos": self.joints, "pixels": {"front": np.full((4, 6, 3), 51, np.uint8)}}


class EnvPipeline:
    """Observations as tensors with a batch dimension, pictures [1, C, H, W] from 0 to 1."""

    def reset(self):
        pass

    def __call__(self, step):
        seen = step[Key.OBSERVATION]
        picture = torch.as_tensor(seen["pixels"]["front"]).permute(2, 0, 1)[None] / 255
        state = torch.as_tensor(seen["agent_pos"])[None]
        return {**step, Key.OBSERVATION: {"observation.state": state, "observation.images.front": picture}}


class ActionPipeline(EnvPipeline):
    """The person's action in place of the policy's where a person acts, who presses a button at success."""

    def __init__(self, person):
        self.person = person

    def __call__(self, step):
        helps, succeeds = self.person.helps, self.person.succeeds
        action = torch.tensor([0.5, -0.5]) if helps else step[Key.ACTION]
        return {
            **step,
            Key.ACTION: action,
            Key.REWARD: float(succeeds),
            Key.DONE: succeeds,
            Key.INFO: {**step[Key.INFO], FLAG: helps},
            Key.COMPLEMENTARY_DATA: {**step[Key.COMPLEMENTARY_DATA], "teleop_action": action},
        }


@pytest.fixture
def robot(monkeypatch, tmp_path):
    """The person, the robot, and the environment that the adapter makes of a file."""
    person, arm = SimpleNamespace(helps=False, succeeds=False), Arm()

    def parse(kind, *, config_path, args):
        return SimpleNamespace(env=json.loads(Path(config_path).read_text())["env"])

    rl = SimpleNamespace(
        GymManipulatorConfig=object,
        make_robot_env=lambda settings: (arm, person) if settings == {"name": "real_robot"} else None,
        make_processors=lambda env, teleoperator, settings: (EnvPipeline(), ActionPipeline(teleoperator)),
        step_env_and_process_transition=take_step,
    )
    modules: dict[str, Any] = {
        "draccus": SimpleNamespace(parse=parse),
        "lerobot": SimpleNamespace(),
        "lerobot.processor": SimpleNamespace(TransitionKey=Key, create_transition=transition),
        "lerobot.rl": SimpleNamespace(gym_manipulator=rl),
        "lerobot.teleoperators": SimpleNamespace(),
        "lerobot.teleoperators.utils": SimpleNamespace(TeleopEvents=SimpleNamespace(IS_INTERVENTION=FLAG)),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    file = tmp_path / "env.json"
    file.write_text('{"env": {"name": "real_robot"}}')
    return person, arm, LeRobot(str(file))


@pytest.mark.parametrize("keys", [InterventionKeys(), InterventionKeys(executed="done", flag="helped")])
def test_what_a_person_executes_is_learned_from_as_a_persons(robot, keys):
    person, arm, made = robot
    env = GymEnv(made, interventions=keys)
    assert dict(zip(env.spec.obs.names, env.spec.obs.dtypes, strict=True)) == {
        "observation.images.front": "uint8",
        "observation.state": "float32",
    }
    first = env.reset(0)
    assert (first.obs["observation.images.front"] == 51).all(), "bytes again"
    wanted = np.array([0.25, 0.25], np.float32)
    steps = []
    for person.helps in (False, True, False):
        steps += [env.step(wanted)[0]]
    np.testing.assert_allclose(arm.executed, [[0.25, 0.25], [0.5, -0.5], [0.25, 0.25]])
    assert [each.executed is not None for each in steps] == [False, True, False]
    assert [each.by_person for each in steps] == [False, True, False]
    np.testing.assert_allclose(steps[1].executed, [0.5, -0.5])
    np.testing.assert_allclose(steps[-1].obs["observation.state"], [1.0, 0.0])


def test_the_persons_button_ends_an_episode_with_a_reward(robot):
    person, arm, env = robot
    env.reset(seed=1)
    assert env.step(np.zeros(2, np.float32))[1:4] == (0.0, False, False)
    person.succeeds = True
    assert env.step(np.zeros(2, np.float32))[1:4] == (1.0, True, False)
    env.close()
    assert arm.closed


def test_without_lerobot_its_installation_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "draccus", None)
    with pytest.raises(UsageError, match="lerobot, which drives this robot") as caught:
        LeRobot("env.json")
    assert "install lerobot" in caught.value.fix
