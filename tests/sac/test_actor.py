"""Acting: what is executed is what is stored, alone or in a crowd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from algorithm.sac.actor import Actor
from algorithm.spec import Z_LIMIT
from tests.batches import CPU, SMALL, small_networks


@pytest.fixture
def networks():
    return small_networks()


def actor(networks, seed=0):
    return Actor(SMALL, networks.rep, networks.policy, device=CPU, seed=seed)


def act(actor, n=4, **options):
    obs = {"obs": np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)}
    return obs, actor.act(obs, SMALL.action.padding(n), actor.initial_carry(n), **options)


def test_what_is_stored_describes_what_is_executed(networks):
    obs, out = act(actor(networks))
    assert np.array_equal(out.action, np.tanh(out.z))  # the replay rebuilds the action from z
    normal = networks.policy(torch.from_numpy(obs["obs"]), {}).continuous
    logp = normal.logp(torch.from_numpy(out.z)).detach().numpy()
    np.testing.assert_allclose(out.behaviour_logp[:, 0], logp, rtol=1e-5)
    assert out.behaviour_logp.shape == (4, 1)
    assert {out.action.dtype, out.z.dtype, out.behaviour_logp.dtype} == {np.dtype(np.float32)}


def test_greedy_is_the_mode_and_draws_nothing(networks):
    one = actor(networks)
    before = one.random_state()
    obs, out = act(one, greedy=True)
    mean = networks.policy(torch.from_numpy(obs["obs"]), {}).continuous.mean.detach().numpy()
    np.testing.assert_allclose(out.z, mean, rtol=1e-6)
    assert np.array_equal(one.random_state(), before)


def test_extreme_policies_are_clamped_and_their_density_stays_finite(networks):
    with torch.no_grad():
        networks.policy.head.continuous.bias.fill_(40.0)
    _, out = act(actor(networks))
    assert np.abs(out.z).max() == Z_LIMIT
    assert np.abs(out.action).max() < 1.0
    assert np.isfinite(out.behaviour_logp).all()


def test_each_agent_is_answered_as_if_alone(networks):
    one = actor(networks)
    obs, together = act(one, 5, greedy=True)
    for i in range(5):
        alone = one.act(
            {"obs": obs["obs"][i : i + 1]}, SMALL.action.padding(1), one.initial_carry(1), greedy=True
        )
        np.testing.assert_allclose(alone.z[0], together.z[i], rtol=1e-5)


def test_random_state_continues_where_it_was_saved(networks):
    one, other = actor(networks, seed=1), actor(networks, seed=2)
    act(one)
    other.load_random_state(one.random_state())
    assert np.array_equal(act(one)[1].z, act(other)[1].z)


@pytest.mark.parametrize("n", [1, 4])
def test_the_sample_is_bit_for_bit_that_of_the_distribution(networks, n):
    """Acting leaves out the density of ``rsample``; learning must see the same actions all the same."""
    obs, out = act(actor(networks, seed=5), n)
    with torch.no_grad():
        normal = networks.policy(torch.from_numpy(obs["obs"]), {}).continuous
    z, _ = normal.rsample(torch.Generator().manual_seed(5))
    assert np.array_equal(out.z, z.numpy())


def test_the_number_of_agents_may_change(networks):
    one, other = actor(networks), actor(networks)
    for n in (1, 3, 2):
        _, out = act(one, n, greedy=True)
        assert out.z.shape == (n, 2)
        assert np.array_equal(out.z, act(other, n, greedy=True)[1].z)
