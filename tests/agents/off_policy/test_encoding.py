"""Encoding tokens with as little work as possible changes no state and no gradient."""

import copy

import pytest
import torch

from algorithm.nn.encoding import Stateless, TokenByToken, WholeWindow, make_encoding
from algorithm.nn.learning.optimiser import FlatAdam
from algorithm.nn.protocols import Rep
from tests.lib.batches import SMALL, random_batch, small_networks


class Counting(Rep):
    """A linear layer."""

    def __init__(self) -> None:
        super().__init__(SMALL)
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, obs, prev_action, carry, valid):
        state = self.layer(obs["obs"])
        return state, state


class Remembering(Counting):
    carry_shape = (4,)


def encode(encoding, rep, batch, **sizes):
    target = copy.deepcopy(rep)
    with torch.no_grad():
        for p in target.parameters():
            p.add_(1.0)
    return encoding(rep, target, batch.obs, batch, **{"burn_in": 0, "learn": 1, **sizes}), target


def test_the_cheapest_encoding_is_chosen():
    assert make_encoding(small_networks().rep) is Stateless
    assert make_encoding(small_networks(rep={"dense_depth": 1}).rep) is TokenByToken
    assert make_encoding(Remembering()) is WholeWindow


@pytest.mark.parametrize("n", [1, 3])
def test_tokens_one_by_one_are_those_of_the_whole_window(n):
    batch, rep = random_batch(4, n), Counting()
    states, target = encode(TokenByToken, rep, batch)
    whole, other = encode(WholeWindow, rep, batch)
    torch.testing.assert_close(states.online, whole.online)
    torch.testing.assert_close(states.target_following, whole.target_following)
    torch.testing.assert_close(states.target_learned, whole.target_learned)
    assert states.target_following.shape == (4, n, 4)
    gradients = []
    for found in (states, whole):
        rep.zero_grad()
        found.online[:, :1].square().sum().backward()
        gradients.append(rep.layer.weight.grad.clone())
    torch.testing.assert_close(*gradients)
    assert not any(p.grad is not None for net in (target, other) for p in net.parameters())


@pytest.mark.parametrize(("limit", "expected"), [(2.5, (1.5, 2.0)), (10.0, (3.0, 4.0)), (5.0, (3.0, 4.0))])
def test_long_gradients_are_shortened_and_short_ones_are_not(limit, expected):
    """The gradient (3, 4) has norm 5; what is returned is that of before."""
    weight = torch.nn.Linear(2, 1, bias=False)
    adam = FlatAdam([weight], 0.1, max_norm=limit)
    assert adam.step((weight.weight * torch.tensor([3.0, 4.0])).sum()).item() == 5.0
    torch.testing.assert_close(adam.flat.grad, torch.tensor(expected))
