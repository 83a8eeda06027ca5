"""Random actions of the warm-up are held for a while, never beyond an episode."""

import numpy as np
import pytest

from algorithm.agents.behaviour_policy import AT_BOUND, BehaviourPolicy
from algorithm.core import ActionSpec, AgentSpec, ObsSpec

HYBRID = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec((3, 2), 2))


class _Memoryless:
    """Stands where the policy's actor would; the warm-up asks it for carries alone."""

    def remember(self, obs, prev_action, carry):
        return carry


def player(*, c: float = 1.0, d: float = 1.0, spec: AgentSpec = HYBRID) -> BehaviourPolicy:
    rng = np.random.default_rng(0)
    return BehaviourPolicy(spec, _Memoryless(), rng, warming_up=True, repeat_c=c, repeat_d=d)


def act(one: BehaviourPolicy, prev: np.ndarray, mask: np.ndarray | None = None, carry=None):
    n = len(prev)
    mask = HYBRID.action.all_allowed(n) if mask is None else mask
    return one.act({}, prev, np.zeros((n, 0), np.float32) if carry is None else carry, mask)


@pytest.mark.parametrize("repeat", [1.0, 4.0])
def test_a_continuous_action_is_held_for_so_many_steps_on_average(repeat):
    one, n, steps = player(c=repeat), 200, 100
    prev, changes = HYBRID.action.padding(n), 0
    for _ in range(steps):
        acted = act(one, prev)
        changes += np.count_nonzero(~np.isclose(acted.action[:, 5:], prev[:, 5:], atol=1e-6).all(1))
        np.testing.assert_array_equal(acted.action[:, 5:], np.tanh(acted.z))
        assert (acted.action[:, :5].sum(1) == 2).all()
        prev = acted.action
    chance = (AT_BOUND / 2.0) ** 2 * 2.0 if repeat > 1.0 else 0.0  # that a number is at the same bound again
    assert n * steps / changes == pytest.approx(repeat / (1.0 - chance**2), rel=0.05)


@pytest.mark.parametrize(("repeat", "same"), [(1.0, 1 / 6), (2.0, 1 / 2 + 1 / 12)])
def test_choices_are_held_apart_from_the_continuous_part(repeat, same):
    """Of six pairs of choices a fresh one is the same by chance."""
    one = player(d=repeat)
    first = act(one, HYBRID.action.padding(3000)).action
    after = act(one, first).action
    assert (after[:, :5] == first[:, :5]).all(1).mean() == pytest.approx(same, abs=0.03)
    assert not np.isclose(after[:, 5:], first[:, 5:], atol=1e-6).all(1).any()
    assert (after[:, :5].sum(1) == 2).all()


def test_a_choice_that_is_not_allowed_any_more_is_not_held():
    one = player(c=1e9, d=1e9)
    first = act(one, HYBRID.action.padding(50)).action
    mask = ~first[:, :5].astype(bool)  # whatever was chosen is forbidden now
    after = act(one, first, mask).action
    assert not (after[:, :5].astype(bool) & ~mask).any()
    np.testing.assert_allclose(after[:, 5:], first[:, 5:], atol=1e-6)


def test_the_density_of_what_is_held_by_hand():
    one, n = player(c=4.0, d=4.0), 400
    first = act(one, HYBRID.action.padding(n))
    inside = (np.abs(first.action[:, 5:]) < 0.9999).all(1)
    density = -2.0 * np.log(2.0 / (1.0 - AT_BOUND))
    np.testing.assert_allclose(
        first.behaviour_logp[inside], [[-np.log(6.0), density]] * inside.sum(), rtol=1e-6
    )
    assert (np.exp(1e3 - first.behaviour_logp[~inside, 1]) == 0.0).all(), "a bound has a probability"
    after = act(one, first.action)
    same = (after.action[:, :5] == first.action[:, :5]).all(1)
    held = np.isclose(after.action[:, 5:], first.action[:, 5:], atol=1e-6).all(1)
    discrete = np.where(same, 0.75 + 0.25 / 6.0, 0.25 / 6.0)
    np.testing.assert_allclose(np.exp(after.behaviour_logp[:, 0]), discrete, rtol=1e-5)
    fresh = ~held & (np.abs(after.action[:, 5:]) < 0.9999).all(1)
    expected = 0.25 * ((1.0 - AT_BOUND) / 2.0) ** 2
    np.testing.assert_allclose(np.exp(after.behaviour_logp[fresh, 1]), expected, rtol=1e-5)
    assert (np.exp(1e3 - after.behaviour_logp[held, 1]) == 0.0).all(), "it had a probability"
    forbidden = act(one, first.action, ~first.action[:, :5].astype(bool))
    np.testing.assert_allclose(np.exp(forbidden.behaviour_logp[:, 0]), 1.0 / 2.0, rtol=1e-5)


def test_half_of_the_numbers_that_are_held_are_at_a_bound():
    u = act(player(c=16.0), HYBRID.action.padding(4000)).action[:, 5:]
    at_bound = np.abs(u) > 0.999
    assert at_bound.mean(0) == pytest.approx([AT_BOUND] * 2, abs=0.03)
    assert (at_bound[:, 0] & at_bound[:, 1]).mean() == pytest.approx(AT_BOUND**2, abs=0.03)
    assert (u[at_bound] > 0).mean() == pytest.approx(0.5, abs=0.03)
    assert np.abs(u[~at_bound]).mean() == pytest.approx(0.5, abs=0.03), "the others are uniform"
    assert (np.abs(act(player(c=1.0), HYBRID.action.padding(400)).action[:, 5:]) < 0.999).mean() > 0.99


def test_the_density_of_more_branches_than_a_probability_has_bits():
    """2 to the power of −1500 is 0 in double precision. A choice is held with 3/4."""
    one, n = player(d=4.0, spec=AgentSpec(HYBRID.obs, ActionSpec((2,) * 1500))), 100
    prev, mask = np.zeros((n, 3000), np.float32), np.ones((n, 3000), np.bool_)
    first = one.act({}, prev, np.zeros((n, 0), np.float32), mask)
    np.testing.assert_allclose(first.behaviour_logp[:, 0], -1500 * np.log(2.0), rtol=1e-5)
    after = one.act({}, first.action, first.carry, mask)
    same = (after.action == first.action).all(1)
    assert 0.6 < same.mean() < 0.9
    expected = np.where(same, np.log(0.75), np.log(0.25) - 1500 * np.log(2.0))
    np.testing.assert_allclose(after.behaviour_logp[:, 0], expected, rtol=1e-5)
