"""Batch norm against hand numbers, and statistics that only a step moves."""

import copy

import pytest
import torch

from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers import norm as module
from algorithm.nn.layers.mlp import mlp
from algorithm.nn.layers.norm import (
    WARM_UP,
    BatchNorm,
    BatchStatistics,
    has_batch_norm,
)

TAKEN, SKIPPED = torch.tensor(True), torch.tensor(False)
NUMBERS = torch.tensor([[0.0], [2.0], [4.0], [6.0]])  # mean 3, variance 5
SHARES = pytest.mark.parametrize("share", [None, torch.full((4,), 0.25)], ids=["fused", "weighted"])


def of_one(
    mean: float = 1.0, var: float = 4.0, steps: float = WARM_UP, epsilon: float = module.EPSILON
) -> tuple[BatchNorm, BatchStatistics]:
    """A layer of one feature with these running statistics."""
    layer = BatchNorm(1, epsilon=epsilon)
    for buffer, value in ((layer.mean, mean), (layer.var, var), (layer.steps, steps)):
        buffer.fill_(value)
    statistics = BatchStatistics([layer])
    statistics.past_warm_up()
    return layer, statistics


@pytest.mark.parametrize(
    ("var", "expected"),
    [(4.0, [-0.5, 0.5, 1.5, 2.5]), (0.01, [0.9751, 3.6584, 6.3416, 9.0249])],
    ids=["nothing is clipped: the running norm", "r and d are clipped"],
)
@SHARES
def test_renormalised_by_hand(var, expected, share):
    layer, statistics = of_one(var=var, epsilon=0.0)
    with statistics.of_batch(share):
        out = layer(NUMBERS)
    torch.testing.assert_close(out.flatten(), torch.tensor(expected), atol=1e-4, rtol=0)


@SHARES
def test_the_running_statistics_by_hand(share):
    layer, statistics = of_one(steps=0)
    with statistics.of_batch(share):
        layer(NUMBERS)
    assert (float(layer.mean), float(layer.var)) == (1.0, 4.0)
    statistics.commit(TAKEN)
    found = torch.cat([layer.mean, layer.var, layer.steps[None]])
    torch.testing.assert_close(found, torch.tensor([1.06, 4.03, 1.0]), atol=1e-5, rtol=0)


def test_a_step_that_was_skipped_moves_nothing():
    layer, statistics = of_one()
    before = copy.deepcopy(layer.state_dict())
    with statistics.of_batch():
        layer(torch.full((4, 1), torch.nan))
    statistics.commit(SKIPPED)
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_rows_without_a_share_change_nothing():
    seen, rows = [], torch.randn(6, 3)
    for filling in (0.0, 1e6):
        layer, x = BatchNorm(3), rows.clone()
        x[4:] = filling
        statistics = BatchStatistics([layer])
        with statistics.of_batch(torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0, 0.0])):
            y = layer(x.requires_grad_())
        (gradient,) = torch.autograd.grad(y[:4].square().sum(), x)
        statistics.commit(TAKEN)
        seen.append([y[:4], gradient[:4], layer.mean, layer.var])
    assert all(torch.equal(one, two) for one, two in zip(*seen, strict=True))


def test_the_running_statistics_alone_are_in_a_checkpoint():
    q = Ensemble(lambda: mlp(4, [6], 2, norm="batch"), 2)
    names = q.state_dict().keys()
    assert {"0/mean", "0/var", "0/steps", "3/mean"} <= set(names) and not any("seen" in one for one in names)
    assert has_batch_norm(q.members[0]) and not has_batch_norm(mlp(3, [4], 2, norm="layer"))
