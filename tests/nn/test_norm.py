"""Batch norm against hand numbers and torch's own, and statistics that only a step moves."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers import norm as module
from algorithm.nn.layers.mlp import hidden_layers, mlp
from algorithm.nn.layers.norm import (
    WARM_UP,
    BatchNorm,
    BatchStatistics,
    has_batch_norm,
)

TAKEN, SKIPPED = torch.tensor(True), torch.tensor(False)
NUMBERS = torch.tensor([[0.0], [2.0], [4.0], [6.0]])  # mean 3, variance 5
BODIES: dict[str, dict] = {
    "batch": {"norm": "batch"},
    "batch_first": {"norm": "batch_first"},
    "inverted": {"norm": "batch_first", "block": "inverted"},
}
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


def test_it_is_torch_s_batch_norm_while_it_warms_up():
    own, other = BatchNorm(5), nn.BatchNorm1d(5, eps=module.EPSILON, momentum=module.MOMENTUM)
    given = {"weight": torch.linspace(0.5, 1.5, 5), "bias": torch.linspace(-1.0, 1.0, 5)}
    for layer in (own, other):
        layer.load_state_dict(given, strict=False)
    x, up = (3 + 2 * torch.randn(16, 5)).requires_grad_(), torch.randn(16, 5)
    statistics = BatchStatistics([own])
    with statistics.of_batch():
        ours = own(x)
    theirs = other(x)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    gradients = [
        torch.autograd.grad(y, [x, *layer.parameters()], up) for y, layer in ((ours, own), (theirs, other))
    ]
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)
    statistics.commit(TAKEN)
    torch.testing.assert_close(own.mean, other.running_mean)
    torch.testing.assert_close(own.var, 0.97 + 0.03 * x.detach().var(0, correction=0))
    other.eval().running_var.copy_(own.var)
    torch.testing.assert_close(own(x), other(x), atol=1e-5, rtol=1e-5)


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


@pytest.mark.parametrize("steps", [0, WARM_UP], ids=["warming up", "renormalised"])
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("share", [None, torch.full((10,), 0.1)], ids=["fused", "weighted"])
def test_the_back_ends_of_an_ensemble_are_alike_with_and_without_shares(kind, share, steps):
    found, x = [], torch.randn(10, 4)
    for backend in ("loop", "vmap"):
        torch.manual_seed(0)
        q = Ensemble(lambda: hidden_layers(4, [6, 6], 2, **BODIES[kind]), 3, backend=backend)
        for name, buffer in q.named_buffers():
            if name.endswith("steps"):
                buffer.fill_(steps)
        statistics = BatchStatistics(q.members, q.copies)
        with statistics.of_batch(share):
            out = q(x)
        inputs = (
            [list(member.parameters()) for member in q.members] if backend == "loop" else [q.parameters()]
        )
        gradients = [torch.autograd.grad(out.square().sum(), list(of), retain_graph=True) for of in inputs]
        by_parameter = [torch.stack(of) for of in zip(*gradients, strict=True)]
        if backend == "vmap":
            by_parameter = [of[0] for of in by_parameter]
        assert all(one.abs().max() > 1e-9 for one in by_parameter)
        statistics.commit(TAKEN)
        found.append([out, *by_parameter, *q.buffers(), *q.parameters(), q(x), q.frozen(x)])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


def test_the_running_statistics_alone_are_in_a_checkpoint():
    q = Ensemble(lambda: mlp(4, [6], 2, norm="batch"), 2)
    names = q.state_dict().keys()
    assert {"0/mean", "0/var", "0/steps", "3/mean"} <= set(names) and not any("seen" in one for one in names)
    assert has_batch_norm(q.members[0]) and not has_batch_norm(mlp(3, [4], 2, norm="layer"))
