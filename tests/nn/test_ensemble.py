"""Both back ends of the ensemble are one function of one set of parameters."""

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


class Branching(Critic):
    """vmap refuses a condition on data."""

    def forward(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        value = super().forward(state, action)
        return -value if value.sum() < 0 else value


@pytest.fixture
def inputs():
    return torch.randn(7, 3, requires_grad=True), torch.randn(7, 2, requires_grad=True)


@pytest.mark.parametrize("members", [None, [2, 0]])
@pytest.mark.parametrize("frozen", [False, True])
def test_back_ends_agree_in_value_and_gradient(inputs, members, frozen):
    """With the same parameters, flat as a learner has them, also after these have moved."""
    results, state = [], Ensemble(Critic, 3, backend="loop").state_dict()
    for backend in ("loop", "vmap"):
        ensemble = Ensemble(Critic, 3, backend=backend)
        ensemble.load_state_dict(state)
        FlatParameters([ensemble]).data.add_(0.1)
        value = (ensemble.frozen if frozen else ensemble)(*inputs, members=members)
        assert value.shape == ((2 if members else 3), 7, 1)
        gradient = torch.autograd.grad(value.square().sum(), inputs, retain_graph=True)
        value.square().sum().backward()
        gradients = [p.grad for p in ensemble.parameters()]
        assert any(one.any() for one in gradients) is not frozen
        results.append([value, *gradient, *gradients])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_vmap_is_the_default_from_five_on_a_cpu_and_what_it_refuses_runs_in_the_loop(inputs):
    assert [Ensemble(Critic, n).backend for n in (2, 4, 5, 10)] == ["loop", "loop", "vmap", "vmap"]
    ensemble = Ensemble(Branching, 5, probe=(torch.zeros(1, 3), torch.zeros(1, 2)))
    assert ensemble.backend == "loop"
    assert ensemble(*inputs).shape == (5, 7, 1)


def test_members_start_apart_and_answer_as_themselves(inputs):
    torch.manual_seed(3)
    alone = [Critic() for _ in range(3)]
    torch.manual_seed(3)
    together = Ensemble(Critic, 3)(*inputs)
    for member, value in zip(alone, together, strict=True):
        torch.testing.assert_close(value, member(*inputs))
    assert not torch.equal(together[0], together[1])
