"""Encoding tokens with as little work as possible changes no state and no gradient."""

from __future__ import annotations

import copy

import pytest
import torch

from algorithm.nn.encoding import RecurrentEncoding, Stateless, TokenByToken, WholeWindow, make_encoding
from algorithm.nn.learning.optimiser import FlatAdam
from algorithm.nn.protocols import Rep
from tests.lib.batches import SMALL, random_batch, small_networks


class Counting(Rep):
    """A linear layer that counts the tokens it was given with and without a gradient."""

    def __init__(self) -> None:
        super().__init__(SMALL)
        self.layer = torch.nn.Linear(3, 4)
        self.with_gradient = self.without = 0

    def forward(self, obs, prev_action, carry, valid):
        assert obs["obs"].shape[:2] == prev_action.shape[:2] == valid.shape
        if torch.is_grad_enabled():
            self.with_gradient += valid.shape[1]
        else:
            self.without += valid.shape[1]
        state = self.layer(obs["obs"])
        return state, state


class Remembering(Counting):
    carry_shape = (4,)


def encode(encoding, rep, batch, **sizes):
    target = copy.deepcopy(rep)
    with torch.no_grad():
        for p in target.parameters():
            p.add_(1.0)
    target.with_gradient = target.without = 0
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
    assert other.with_gradient == 0 and target.with_gradient == 0


def costs(rep, target):
    return rep.with_gradient, rep.without, target.without


@pytest.mark.parametrize(
    "encoding, learned, whole, following",
    [(WholeWindow, (6, 0, 0), (6, 0, 0), (6, 0, 6)), (RecurrentEncoding, (2, 1, 0), (2, 4, 0), (2, 4, 6))],
)
def test_windows_with_memory_are_encoded_as_far_as_they_are_asked_for(encoding, learned, whole, following):
    rep = Remembering()
    states, target = encode(encoding, rep, random_batch(4, 5), burn_in=1, learn=2)
    found = [costs(rep, target)]
    with torch.no_grad():
        for name in ("learned", "online", "target_following", "target_learned"):
            getattr(states, name)
            found.append(costs(rep, target))
        assert states.online.requires_grad
    assert found == [(0, 0, 0), learned, whole, following, following]
    assert torch.equal(states.learned, states.online[:, 1:3]) and states.learned.shape == (4, 2, 4)


@pytest.mark.parametrize(("limit", "expected"), [(2.5, (1.5, 2.0)), (10.0, (3.0, 4.0)), (5.0, (3.0, 4.0))])
def test_long_gradients_are_shortened_and_short_ones_are_not(limit, expected):
    """The gradient (3, 4) has norm 5; what is returned is that of before."""
    weight = torch.nn.Linear(2, 1, bias=False)
    adam = FlatAdam([weight], 0.1, max_norm=limit)
    assert adam.step((weight.weight * torch.tensor([3.0, 4.0])).sum()).item() == 5.0
    torch.testing.assert_close(adam.flat.grad, torch.tensor(expected))
