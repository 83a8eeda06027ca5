"""Imitation: losses, penalty, rewards and cloning error, by hand."""

import math

import pytest
import torch

from algorithm.ops.imitation import (
    airl_reward,
    cloning_error,
    discriminator_loss,
    gail_reward,
    gradient_penalty,
)

F = torch.tensor([0.0, math.log(3.0), -math.log(3.0)])  # D = ½, ¾, ¼


def test_losses_and_rewards_are_those_of_d():
    """The loss is least for 1 of the expert and 0 of the policy."""
    expert, policy = discriminator_loss(F, F)
    torch.testing.assert_close(expert, torch.tensor([math.log(2), math.log(4 / 3), math.log(4)]))
    torch.testing.assert_close(policy, torch.tensor([math.log(2), math.log(4), math.log(4 / 3)]))
    torch.testing.assert_close(gail_reward(F), torch.tensor([math.log(2), math.log(4), math.log(4 / 3)]))
    torch.testing.assert_close(airl_reward(F), F)
    far = gail_reward(torch.tensor([100.0, -100.0]))
    torch.testing.assert_close(far, torch.tensor([-math.log(1e-7), 0.0]), atol=2e-7, rtol=1e-6)


def test_the_penalty_is_that_of_the_slope_over_all_inputs():
    """f = 3 v + 2 Σ w has the slope √(9 + 4·4) = 5 everywhere, so (5 − 1)² = 16."""
    inputs = {"v": torch.randn(2, 1), "w": torch.randn(2, 2, 2)}
    found = gradient_penalty(
        lambda x: 3 * x["v"].squeeze(-1) + 2 * x["w"].sum((1, 2)), inputs, inputs, torch.rand(2)
    )
    torch.testing.assert_close(found, torch.full((2,), 16.0))


def test_the_penalty_is_taken_between_the_pair_and_has_a_gradient():
    """f = w x², w = 1, has the slope 2 w x. A quarter of the way from 2 to 4, at 3.5, that is 7: (7 − 1)².

    d/dw (7 w − 1)² = 2 · 6 · 7.
    """
    w = torch.tensor(1.0, requires_grad=True)
    expert, policy = {"x": torch.tensor([[2.0]])}, {"x": torch.tensor([[4.0]])}
    found = gradient_penalty(lambda x: w * x["x"].square().sum(-1), expert, policy, torch.tensor([0.25]))
    found.backward()
    assert (found.item(), w.grad.item()) == (pytest.approx(36.0), pytest.approx(84.0))


def test_the_error_of_cloning_is_a_mean_over_components():
    mean, u = torch.tensor([[1.0, -1.0], [0.0, 2.0]]), torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    torch.testing.assert_close(cloning_error(mean, u), torch.tensor([2.5, 2.0]))
    assert cloning_error(torch.zeros(3, 0), torch.zeros(3, 0)).tolist() == [0.0, 0.0, 0.0]
