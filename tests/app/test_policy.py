"""A trained policy by itself: what it is given, where it is sent, and the environments it fits."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import asac
from tests.app.test_env_objects import KEYS
from tests.lib.toys_objects import Walk

SHORT = {"overrides": KEYS, "max_step": 40, "seed": 1, "device": "cpu", "quiet": True}


class Turns(Walk):
    """Go left or right by choices that begin at ``start``; the info forbids the second one."""

    def __init__(self, start: int = 3, bound: float = 9.0, *, masked: bool = True) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-bound, bound, (1,), np.float32)
        self.action_space = spaces.Discrete(2, start=start)
        self.info = {"action_mask": np.array([1, 0], np.int8)} if masked else {}

    def reset(self, **given):
        return super().reset(**given)[0], self.info

    def step(self, action):
        return *super().step([action - self.action_space.start - 0.5])[:4], self.info


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return asac.train(Turns, **SHORT, directory=tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": 2},
        {"state": (np.zeros((1, 2)), np.zeros((1, 0)))},
        {"episode_start": [True, False]},
        {"obs": np.zeros((3, 1)), "episode_start": [True, False]},
        {"obs": np.zeros((3, 1)), "state": 2},
    ],
)
def test_arguments_of_other_rows_are_refused(run, wrong):
    policy, info = run.policy(), {"action_mask": None}
    if wrong.get("state") == 2:
        wrong = {**wrong, "state": policy.act(np.zeros((2, 1)), info=info)[1]}
    with pytest.raises(asac.UsageError):
        policy.act(**{"obs": np.zeros(1), "info": info, **wrong})
    with pytest.raises(Exception, match="shape"):
        policy.act(np.zeros(4), info=info)


def test_a_policy_that_learned_with_masks_is_not_used_without(run, tmp_path):
    for policy in (run.policy(), asac.load(run.export(tmp_path / "own.zip"), env=Turns)):
        assert policy.act(np.ones(1), info=Turns().info)[0] == 3
        masks = {"action_mask": np.array([[0, 1], [1, 0]])}
        assert policy.act(np.ones((2, 1)), info=masks)[0].tolist() == [4, 3]
        policy.act(np.ones(1), info={"action_mask": None})
        for obs in (np.ones(1), np.ones((2, 1))):
            with pytest.raises(asac.UsageError):
                policy.act(obs)
