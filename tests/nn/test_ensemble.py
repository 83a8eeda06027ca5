"""Both back ends of the ensemble are one function of one set of parameters."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from algorithm.nn.ensemble import Ensemble
from algorithm.nn.learning.flat import FlatParameters


class Critic(nn.Module):
    """A user's critic with a buffer, and names that contain dots."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))
        self.register_buffer("scale", torch.rand(1) + 0.5)

    def forward(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.scale * self.net(torch.cat([state, action], -1))


class Branching(nn.Module):
    """vmap refuses a condition on data."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 1)

    def forward(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        value = self.layer(torch.cat([state, action], -1))
        return -value if value.sum() < 0 else value


@pytest.fixture
def inputs():
    return torch.randn(7, 3, requires_grad=True), torch.randn(7, 2, requires_grad=True)


def pair(n: int = 3) -> tuple[Ensemble, Ensemble]:
    """A loop and a vmap ensemble with the same parameters, flat as a learner has them."""
    loop, batched = Ensemble(Critic, n, backend="loop"), Ensemble(Critic, n, backend="vmap")
    batched.load_state_dict(loop.state_dict())
    for ensemble in (loop, batched):
        FlatParameters([ensemble])
    return loop, batched


@pytest.mark.parametrize("members", [None, [2, 0]])
@pytest.mark.parametrize("frozen", [False, True])
def test_back_ends_agree_in_value_and_gradient(inputs, members, frozen):
    results = []
    for ensemble in pair():
        call = ensemble.frozen if frozen else ensemble
        value = call(*inputs, members=members)
        assert value.shape == ((2 if members else 3), 7, 1)
        gradient = torch.autograd.grad(value.square().sum(), inputs)
        if not frozen:
            call(*inputs, members=members).square().sum().backward()
        results.append([value, *gradient, *(p.grad for p in ensemble.parameters())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_members_start_apart_and_answer_as_themselves(inputs):
    torch.manual_seed(3)
    alone = [Critic() for _ in range(3)]
    torch.manual_seed(3)
    together = Ensemble(Critic, 3)(*inputs)
    for member, value in zip(alone, together, strict=True):
        torch.testing.assert_close(value, member(*inputs))
    assert not torch.equal(together[0], together[1])


def test_frozen_reaches_the_inputs_and_no_parameter(inputs):
    for ensemble in pair():
        ensemble.frozen(*inputs).sum().backward()
        assert inputs[1].grad is not None
        assert all(not p.grad.any() for p in ensemble.parameters())


def test_loop_follows_parameters_that_an_optimiser_moves(inputs):
    loop, batched = pair()
    for ensemble in (loop, batched):
        with torch.no_grad():
            for p in ensemble.parameters():
                p.add_(0.1)
    torch.testing.assert_close(loop(*inputs), batched(*inputs))
    torch.testing.assert_close(loop.frozen(*inputs), batched(*inputs))


def test_default_is_the_loop_below_five_on_a_cpu():
    assert [Ensemble(Critic, n).backend for n in (2, 4, 5, 10)] == ["loop", "loop", "vmap", "vmap"]


def test_what_vmap_refuses_runs_in_the_loop_and_says_why(inputs):
    ensemble = Ensemble(Branching, 5, probe=(torch.zeros(1, 3), torch.zeros(1, 2)))
    assert ensemble.backend == "loop"
    assert "data-dependent" in ensemble.fallback
    assert ensemble(*inputs).shape == (5, 7, 1)


def test_state_dicts_are_exchangeable(inputs):
    loop, batched = pair()
    fresh = Ensemble(Critic, 3, backend="vmap")
    fresh.load_state_dict(loop.state_dict())
    torch.testing.assert_close(fresh(*inputs), loop(*inputs))
    assert list(loop.state_dict()) == list(batched.state_dict())
