"""Advantages and losses against plain loops."""

import math

import numpy as np
import pytest
import torch

from algorithm.agents.on_policy.results import explained_variance
from algorithm.agents.on_policy.rollout import advantages
from algorithm.ops.densities import normal_entropy, normal_logp
from algorithm.ops.on_policy import approximate_kl, surrogate, value_error


def gae_by_hand(rewards, values, last, terminated, gamma, lam):
    """Advantages of one episode's steps, each as the sum that defines it; ``last``: V behind the last one."""
    following = [*values[1:], 0.0 if terminated else last]
    deltas = [r + gamma * w - v for r, v, w in zip(rewards, values, following, strict=True)]
    return [sum((gamma * lam) ** k * delta for k, delta in enumerate(deltas[t:])) for t in range(len(deltas))]


@pytest.mark.parametrize("lam", [0.0, 0.9, 1.0])
def test_advantages_are_the_sums_that_define_them(rng, lam):
    """Episodes of several streams, interleaved as they are stored; some terminated, truncated, unfinished."""
    lengths, terminated = [5, 3, 7, 1, 4], [True, False, False, True, True]
    parts, expected = [], {}
    for chain, (length, ends) in enumerate(zip(lengths, terminated, strict=True)):
        rewards, values = rng.normal(size=length), rng.normal(size=length)
        last = rng.normal()
        by_hand = gae_by_hand(rewards, values, last, ends, 0.97, lam)
        for t in range(length):
            after = values[t + 1] if t + 1 < length else last
            over = ends and t + 1 == length
            parts.append((t, chain, rewards[t], values[t], after, over))
            expected[chain, t] = by_hand[t]
    parts.sort()  # step by step, as they come
    place = {(chain, t): i for i, (t, chain, *_) in enumerate(parts)}
    following = [place.get((chain, t + 1), -1) for t, chain, *_ in parts]
    reward, value, after, over = (np.array([part[k] for part in parts]) for k in range(2, 6))
    found = advantages(
        reward.astype(np.float32),
        value.astype(np.float32),
        after.astype(np.float32),
        over.astype(np.bool_),
        np.array(following),
        np.ones(len(parts)),
        gamma=0.97,
        trace_decay=lam,
    )
    np.testing.assert_allclose(found, [expected[chain, t] for t, chain, *_ in parts], atol=1e-5)


def test_the_weights_of_v_trace_make_its_targets(rng):
    """One chain of six steps that older networks have made, against the sum of arXiv 1802.01561, eq. 1."""
    n, gamma = 6, 0.9
    reward, value, after = rng.normal(size=n), rng.normal(size=n), rng.normal()
    behind = np.append(value[1:], after)
    weight = np.minimum(1.0, np.exp(rng.normal(size=n)))
    delta = reward + gamma * behind - value
    target = [
        value[s] + sum(gamma ** (t - s) * weight[s:t].prod() * weight[t] * delta[t] for t in range(s, n))
        for s in range(n)
    ]
    found = advantages(
        reward.astype(np.float32),
        value.astype(np.float32),
        behind.astype(np.float32),
        np.zeros(n, np.bool_),
        np.array([*range(1, n), -1]),
        weight,
        gamma=gamma,
        trace_decay=1.0,
    )
    np.testing.assert_allclose(value + weight * found, target, atol=1e-5)
    np.testing.assert_allclose(found, reward + gamma * np.append(target[1:], after) - value, atol=1e-5)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [(1.0, 2.0, -2.0), (1.5, 2.0, -2.4), (1.5, -2.0, 3.0), (0.5, 2.0, -1.0), (0.5, -2.0, 1.6)],
)
def test_the_surrogate_by_hand(ratio, advantage, loss):
    found = surrogate(torch.tensor([math.log(ratio)]), torch.tensor([advantage]), 0.2)
    assert found.item() == pytest.approx(loss)
    unclipped = surrogate(torch.tensor([math.log(ratio)]), torch.tensor([advantage]), math.inf)
    assert unclipped.item() == pytest.approx(-ratio * advantage)


def test_a_ratio_of_many_actions_that_is_beyond_all_numbers_spoils_no_minibatch():
    log_ratio = torch.tensor([200.0, 200.0, 0.0], requires_grad=True)
    loss = surrogate(log_ratio, torch.tensor([1.0, -1.0, 1.0]), 0.2)
    assert loss.tolist() == pytest.approx([-1.2, math.exp(20.0), -1.0])
    loss.sum().backward()
    assert log_ratio.grad is not None and log_ratio.grad.tolist() == [0.0, 0.0, -1.0]
    assert approximate_kl(log_ratio).isfinite().all()


def test_values_are_held_back_where_that_is_worse():
    value, old, target = (torch.tensor(x) for x in ([2.0, 1.1, 0.0], [1.0, 1.0, 1.0], [3.0, 1.2, 0.5]))
    assert value_error(value, old, target, None).tolist() == pytest.approx([1.0, 0.01, 0.25])
    assert value_error(value, old, target, 0.2).tolist() == pytest.approx([3.24, 0.01, 0.25])


def test_divergence_and_explained_variance(rng):
    assert approximate_kl(torch.tensor([0.0, 1.0])).tolist() == pytest.approx([0.0, math.e - 2.0])
    target = rng.normal(size=50)
    assert explained_variance(target, target) == 1.0
    assert explained_variance(np.zeros(50), target) == pytest.approx(0.0)
    assert math.isnan(explained_variance(target, np.ones(50)))


def test_densities_are_those_of_torch():
    mean, log_std, z = torch.randn(7, 3), 0.3 * torch.randn(7, 3), torch.randn(7, 3)
    normal = torch.distributions.Normal(mean, log_std.exp())
    torch.testing.assert_close(normal_logp(z, mean, log_std), normal.log_prob(z).sum(-1))
    torch.testing.assert_close(normal_entropy(log_std), normal.entropy().sum(-1))
