"""Limits of actions, and the emergency stop."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from algorithm.env.config import InterventionKeys
from algorithm.env.gym import GymEnv, GymRecipe
from algorithm.extras.robots.safety import ActionLimits, EmergencyStop

HYBRID = Dict({"grip": Discrete(3), "move": Box(-1.0, 1.0, (2,))})


class Arm(gym.Env):
    """Remembers what was executed; ``helps``: action of a person in place of it; ``stops``: its stop."""

    def __init__(self, space=None, helps=None, stops=False, flagged=True, name="teleop_action"):
        self.observation_space = Box(-1.0, 1.0, (1,))
        self.action_space = space or Box(-2.0, 2.0, (2,))
        self.helps, self.stops, self.flagged, self.executed, self.resets = helps, stops, flagged, [], 0
        self.name = name

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets += 1
        return np.zeros(1, np.float32), {"stop": self.stops and self.resets == 1}

    def step(self, action):
        self.executed.append(action)
        info = {"stop": self.stops}
        if self.flagged:
            info["is_intervention"] = self.helps is not None
        if self.helps is not None:
            info[self.name] = self.helps
        return np.zeros(1, np.float32), 0.0, False, False, info


class Button(Arm):
    """Arm with a button, which is released when it has been asked three times."""

    asked = 0

    def is_stopped(self):
        self.asked += 1
        return self.asked < 3


@pytest.mark.parametrize(
    ("space", "limits", "wanted", "executed"),
    [
        (None, {"low": -1, "high": [0.5, 1.0]}, [[2.0, -2.0]], [[0.5, -1.0]]),
        (None, {"change": 0.5}, [[2.0, 2.0], [2.0, 2.0], [-2.0, -2.0]], [[0.5, 0.5], [1.0, 1.0], [0.5, 0.5]]),
        (Box(1.0, 3.0, (1,)), {"change": 0.5}, [[3.0]], [[1.5]]),  # without 0, rest is the nearest bound
    ],
)
def test_what_is_executed_is_limited_and_reported(space, limits, wanted, executed):
    """A change is counted from rest, and then from what was executed; a reset begins at rest again."""
    arm = Arm(space)
    env = ActionLimits(arm, **limits)
    for _ in range(2):
        env.reset()
        for action in wanted:
            info = env.step(np.array(action, np.float32))[-1]
    np.testing.assert_array_equal(arm.executed, executed * 2)
    np.testing.assert_array_equal(info["action_taken"], executed[-1])


def test_of_a_dict_one_part_is_limited():
    arm = Arm(HYBRID)
    env = ActionLimits(arm, high=0.1, part="move")
    env.reset()
    info = env.step({"grip": 2, "move": np.ones(2, np.float32)})[-1]
    assert info["action_taken"]["grip"] == arm.executed[0]["grip"] == 2
    np.testing.assert_allclose(info["action_taken"]["move"], 0.1)


@pytest.mark.parametrize("flagged", [True, False])
@pytest.mark.parametrize("name", ["teleop_action", "by_hand"])
def test_a_persons_action_is_reported_as_it_was_and_the_change_goes_on_from_it(flagged, name):
    arm = Arm(helps=np.array([1.5, 1.5], np.float32), flagged=flagged, name=name)
    env = ActionLimits(arm, low=-1, high=1, change=0.25)
    GymEnv(env, interventions=InterventionKeys(actions=(name,)))
    env.reset()
    info = env.step(np.zeros(2, np.float32))[-1]
    assert "action_taken" not in info
    arm.helps = None
    env.step(np.zeros(2, np.float32))
    np.testing.assert_array_equal(arm.executed[1], [1.0, 1.0])


@pytest.mark.parametrize(
    ("space", "limits", "message"),
    [
        (Discrete(3), {}, "part is None"),
        (HYBRID, {}, "part is None"),
        (None, {"low": -3}, "no part of the action's bounds"),
        (None, {"low": 1, "high": 0}, "no part of the action's bounds"),
        (None, {"high": float("nan")}, "no part of the action's bounds"),
        (None, {"change": 0}, "above 0"),
        (None, {"low": [1, 1, 1]}, "has the shape"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(space, limits, message):
    with pytest.raises(ValueError, match=message):
        ActionLimits(Arm(space), **limits)


@pytest.mark.parametrize("keys", [InterventionKeys(), InterventionKeys(executed="done", flag="", actions=())])
def test_the_agent_learns_from_what_was_executed_and_a_layer_below_has_the_last_word(keys):
    """Through the reader of infos; the inner limits are tighter, and the change is counted from them."""
    env = GymEnv(ActionLimits(ActionLimits(Arm(), high=0.25), change=0.5), interventions=keys)
    env.reset(0)
    (seen, *_), (again, *_) = (env.step(np.ones(2, np.float32)) for _ in range(2))
    np.testing.assert_allclose(seen.executed, 0.125)  # 0.25 of bounds of 2
    np.testing.assert_allclose(again.executed, 0.125)
    outer = env._env
    np.testing.assert_allclose(outer._before, 0.25)


def test_the_environment_of_a_task_reports_by_the_names_of_its_configuration():
    limits = {f"{ActionLimits.__module__}:ActionLimits": {"high": 1.0}}
    keys = InterventionKeys(executed="done")
    env = GymRecipe(env_id="Pendulum-v1", env_args={}, wrappers=(limits,), interventions=keys).make_gym_env()
    env.reset()
    assert env.step(np.full(1, 2.0, np.float32))[-1] == {"done": [1.0]}


def test_a_stop_truncates_and_waits_for_the_button(monkeypatch):
    monkeypatch.setattr(EmergencyStop, "POLL", 0.0)
    arm = Button()
    env = EmergencyStop(arm)
    env.reset()
    assert (arm.asked, arm.resets) == (3, 1), "it was pressed already"
    assert env.step(np.zeros(2))[3] is False
    arm.stops, arm.asked = True, 0
    assert env.step(np.zeros(2))[3] is True
    env.reset()
    assert (arm.asked, arm.resets) == (3, 2)


def test_a_stop_during_the_reset_waits_and_resets_again(monkeypatch):
    monkeypatch.setattr(EmergencyStop, "POLL", 0.0)
    arm = Button(stops=True)
    arm.asked = 5  # released
    EmergencyStop(arm).reset()
    assert arm.resets == 2


def test_without_a_button_somebody_presses_enter(monkeypatch):
    pressed = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", pressed.append)
    env = EmergencyStop(Arm(stops=True))
    env.reset()
    env.step(np.zeros(2))
    env.reset()
    assert "press Enter" in pressed[0]


def test_a_stop_that_nobody_could_end_is_refused(monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    with pytest.raises(ValueError, match="no terminal"):
        EmergencyStop(Arm())


def test_a_key_that_is_turned_off_is_not_written_and_a_name_of_the_users_own_is_left_alone():
    keyboard = gym.Wrapper(ActionLimits(Arm(), high=0.25))
    keyboard.intervention_keys = {"w": 1}
    env = GymEnv(keyboard, interventions=InterventionKeys(executed="", flag=""))
    env.reset(1)
    assert env.step(np.ones(2, np.float32))[0].executed is None
    assert keyboard.intervention_keys == {"w": 1}
