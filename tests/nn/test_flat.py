"""Flat parameters change where numbers lie, never what they are."""

import copy

import pytest
import torch
from torch import nn

from algorithm.nn.learning.flat import FlatParameters, Target
from algorithm.nn.learning.optimiser import BETA_1, BETA_2, EPSILON, FlatAdam


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.mark.parametrize(("beta", "decay"), [(BETA_1, 0.0), (0.5, 0.1)])
def test_flat_adam_walks_where_adamw_walks_also_from_saved_state(beta, decay):
    """Matrices decay, biases do not."""
    flat_module = network()
    plain_module = copy.deepcopy(flat_module)
    groups = [{"params": [p], "weight_decay": decay * (p.dim() == 2)} for p in plain_module.parameters()]
    plain = torch.optim.AdamW(groups, 0.01, betas=(beta, BETA_2), eps=EPSILON)
    options = {"beta_1": beta, "weight_decay": decay}
    flat = FlatAdam([flat_module], 0.01, **options)
    for step in range(20):
        if step == 10:
            saved, flat = flat.tensors(), FlatAdam([flat_module], 0.01, **options)
            flat.load_tensors(saved)
        x = torch.randn(5, 3)
        norm = flat.step(flat_module(x).square().mean())
        plain.zero_grad()
        plain_module(x).square().mean().backward()
        plain.step()
        torch.testing.assert_close(norm, nn.utils.get_total_norm(p.grad for p in plain_module.parameters()))
    for a, b in zip(flat_module.parameters(), plain_module.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_other_sizes_and_mixed_dtypes_are_refused():
    small, large = FlatAdam([nn.Linear(1, 1)], 0.1), FlatAdam([nn.Linear(2, 2)], 0.1)
    with pytest.raises(ValueError, match="2 values, not 6"):
        large.load_tensors(small.tensors())
    with pytest.raises(ValueError, match="one device and dtype"):
        FlatParameters([nn.Linear(1, 1), nn.Linear(1, 1).double()])


def test_polyak_moves_parameters_and_copies_statistics():
    module = nn.Linear(1, 1, bias=False)
    module.register_buffer("count", torch.zeros(1))
    online = FlatParameters([module])
    target = Target([module], online.data)
    (copied,) = target.modules
    online.data.fill_(4.0)
    target.flat.data.fill_(2.0)
    module.count.fill_(7.0)
    target.polyak_(0.25)
    assert (copied.weight.item(), copied.count.item()) == (2.5, 7.0)  # 2 + ¼(4 − 2)
    assert not copied.weight.requires_grad
