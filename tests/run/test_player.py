"""Random continuous actions of the warm-up are held for a while, never across an episode's start."""

from __future__ import annotations

import numpy as np
import pytest

from algorithm.run.player import TrainingPlayer
from algorithm.spec import ActionSpec, AgentSpec, ObsSpec

HYBRID = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec((3, 2), 2))


class _Memoryless:
    """Stands where the policy's actor would; the warm-up asks it for carries alone."""

    def remember(self, obs, prev_action, carry):
        return carry


def player(repeat: float) -> TrainingPlayer:
    rng = np.random.default_rng(0)
    return TrainingPlayer(HYBRID, _Memoryless(), rng, warming_up=True, repeat=repeat)


def act(one: TrainingPlayer, prev: np.ndarray):
    n = len(prev)
    return one.act({}, prev, np.zeros((n, 0), np.float32), HYBRID.action.all_allowed(n))


@pytest.mark.parametrize("repeat", [1.0, 4.0])
def test_a_continuous_action_is_held_for_so_many_steps_on_average(repeat):
    one, n, steps = player(repeat), 200, 100
    prev, changes = HYBRID.action.padding(n), 0
    for _ in range(steps):
        acted = act(one, prev)
        changes += np.count_nonzero(~np.isclose(acted.action[:, 5:], prev[:, 5:], atol=1e-6).all(1))
        np.testing.assert_array_equal(acted.action[:, 5:], np.tanh(acted.z))
        assert (acted.action[:, :5].sum(1) == 2).all()
        prev = acted.action
    assert n * steps / changes == pytest.approx(repeat, rel=0.05)


def test_the_first_action_of_an_episode_is_drawn():
    acted = act(player(1e9), HYBRID.action.padding(50))
    assert len(np.unique(acted.z[:, 0])) == 50


def test_choices_are_always_fresh():
    one = player(1e9)
    first = act(one, HYBRID.action.padding(300)).action
    after = act(one, first).action
    np.testing.assert_allclose(after[:, 5:], first[:, 5:], atol=1e-6)
    same = (after[:, :3] == first[:, :3]).all(1).mean()
    assert same == pytest.approx(1 / 3, abs=0.1)
