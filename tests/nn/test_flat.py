"""Flat parameters change where numbers lie, never what they are."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from algorithm.nn.learning.flat import FlatParameters
from algorithm.nn.learning.optimiser import FlatAdam
from algorithm.nn.learning.target import Target


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def test_values_and_gradients_are_views_of_two_tensors():
    module = network()
    before = [p.detach().clone() for p in module.parameters()]
    flat = FlatParameters([module])
    assert len(flat) == 3 * 4 + 4 + 4 * 2 + 2
    for p, value in zip(module.parameters(), before, strict=True):
        assert torch.equal(p, value)
        assert p.untyped_storage().data_ptr() == flat.data.untyped_storage().data_ptr()
    module(torch.ones(1, 3)).sum().backward()
    assert torch.equal(torch.cat([p.grad.flatten() for p in module.parameters()]), flat.grad)


def test_flat_adam_walks_where_adam_walks():
    flat_module = network()
    plain_module = copy.deepcopy(flat_module)
    flat = FlatAdam([flat_module], 0.01)
    plain = torch.optim.Adam(plain_module.parameters(), 0.01)
    for _ in range(20):
        x = torch.randn(5, 3)
        norm = flat.step(flat_module(x).square().mean())
        plain.zero_grad()
        plain_module(x).square().mean().backward()
        plain.step()
        gradient = torch.cat([p.grad.flatten() for p in plain_module.parameters()])
        torch.testing.assert_close(norm, gradient.norm())
    for a, b in zip(flat_module.parameters(), plain_module.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_adam_continues_from_saved_state():
    def run(steps_before: int) -> torch.Tensor:
        torch.manual_seed(1)
        module = network()
        adam = FlatAdam([module], 0.01)
        for step in range(6):
            if step == steps_before:
                saved = adam.tensors()
                adam = FlatAdam([module], 0.01)
                adam.load_tensors(saved)
            adam.step(module(torch.full((1, 3), float(step))).square().sum())
        return adam.flat.data.clone()

    assert torch.equal(run(3), run(-1))


def test_adam_refuses_the_state_of_another_size():
    small, large = FlatAdam([nn.Linear(1, 1)], 0.1), FlatAdam([nn.Linear(2, 2)], 0.1)
    with pytest.raises(ValueError, match="2 values, not 6"):
        large.load_tensors(small.tensors())


def test_mixed_dtypes_are_refused():
    with pytest.raises(ValueError, match="one device and dtype"):
        FlatParameters([nn.Linear(1, 1), nn.Linear(1, 1).double()])


class WithStatistic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        self.register_buffer("count", torch.zeros(1))


def test_polyak_moves_parameters_and_copies_statistics():
    module = WithStatistic()
    online = FlatParameters([module])
    target = Target([module], online)
    (copied,) = target.modules
    with torch.no_grad():
        module.layer.weight.fill_(4.0)
        copied.layer.weight.fill_(2.0)
    module.count.fill_(7.0)
    target.polyak_(0.25)
    assert copied.layer.weight.item() == 2.5  # 2 + ¼(4 − 2)
    assert copied.count.item() == 7.0
    assert not copied.layer.weight.requires_grad
