"""Batch norm against hand numbers and torch's own, and statistics that only a step moves."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers import norm as module
from algorithm.nn.layers.mlp import mlp
from algorithm.nn.layers.norm import WARM_UP, BatchNorm, BatchStatistics, NormedLinear, has_batch_norm

TAKEN, SKIPPED = torch.tensor(True), torch.tensor(False)


def of_one(mean: float = 1.0, var: float = 4.0, steps: float = WARM_UP) -> tuple[BatchNorm, BatchStatistics]:
    """A layer of one feature with these running statistics."""
    layer = BatchNorm(1)
    layer.mean.fill_(mean)
    layer.var.fill_(var)
    layer.steps.fill_(steps)
    statistics = BatchStatistics([layer])
    statistics.look()
    return layer, statistics


@pytest.mark.parametrize(
    "var, expected",
    [(4.0, [-0.5, 0.5, 1.5, 2.5]), (0.01, [0.9751, 3.6584, 6.3416, 9.0249])],
    ids=["nothing is clipped: the running norm", "r and d are clipped"],
)
@pytest.mark.parametrize("share", [None, torch.full((4,), 0.25)], ids=["fused", "weighted"])
def test_renormalised_by_hand(monkeypatch, var, expected, share):
    monkeypatch.setattr(module, "EPSILON", 0.0)
    layer, statistics = of_one(var=var)
    with statistics.of_batch(share):
        out = layer(torch.tensor([[0.0], [2.0], [4.0], [6.0]]))
    torch.testing.assert_close(out.flatten(), torch.tensor(expected), atol=1e-4, rtol=0)


@pytest.mark.parametrize("share", [None, torch.full((4,), 0.25)], ids=["fused", "weighted"])
def test_the_running_statistics_by_hand(share):
    layer, statistics = of_one(steps=0)
    with statistics.of_batch(share):
        layer(torch.tensor([[0.0], [2.0], [4.0], [6.0]]))
    assert (float(layer.mean), float(layer.var)) == (1.0, 4.0)
    shift = statistics.settle(TAKEN, unify=False)
    torch.testing.assert_close(layer.mean, torch.tensor([1.02]))
    torch.testing.assert_close(layer.var, torch.tensor([4.01]), atol=1e-5, rtol=0)
    assert layer.steps == 1
    torch.testing.assert_close(shift, torch.tensor(2.0 / (4.0 + module.EPSILON) ** 0.5))


def test_a_step_that_was_skipped_moves_nothing():
    layer, statistics = of_one()
    before = copy.deepcopy(layer.state_dict())
    with statistics.of_batch():
        layer(torch.full((4, 1), torch.nan))
    statistics.settle(SKIPPED, unify=False)
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_torch_s_batch_norm_while_it_warms_up(weighted):
    torch.manual_seed(0)
    own, other = BatchNorm(5), nn.BatchNorm1d(5, eps=module.EPSILON, momentum=module.MOMENTUM)
    with torch.no_grad():
        for layer in (own, other):
            layer.weight.copy_(torch.linspace(0.5, 1.5, 5))
            layer.bias.copy_(torch.linspace(-1.0, 1.0, 5))
    x = (3 + 2 * torch.randn(16, 5)).requires_grad_()
    statistics = BatchStatistics([own])
    with statistics.of_batch(torch.full((16,), 1 / 16) if weighted else None):
        ours = own(x)
    theirs = other(x)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    up = torch.randn(16, 5)
    gradients = [
        torch.autograd.grad(y, [x, *ps], up, retain_graph=True)
        for y, ps in ((ours, (own.weight, own.bias)), (theirs, (other.weight, other.bias)))
    ]
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)
    statistics.settle(TAKEN, unify=False)
    torch.testing.assert_close(own.mean, other.running_mean)
    biased = 0.99 + 0.01 * x.detach().var(0, correction=0)
    torch.testing.assert_close(own.var, biased)
    other.eval()
    other.running_var.copy_(own.var)
    torch.testing.assert_close(own(x), other(x), atol=1e-5, rtol=1e-5)


def test_rows_without_a_share_change_nothing():
    torch.manual_seed(0)
    seen = []
    for filling in (0.0, 1e6):
        layer, x = BatchNorm(3), torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
        x[4:] = filling
        x.requires_grad_()
        statistics = BatchStatistics([layer])
        with statistics.of_batch(torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0, 0.0])):
            y = layer(x)
        (gradient,) = torch.autograd.grad(y[:4].square().sum(), x)
        statistics.settle(TAKEN, unify=False)
        seen.append((y[:4], gradient[:4], layer.mean, layer.var))
    for one, two in zip(*seen, strict=True):
        assert torch.equal(one, two)


def test_permuting_rows_changes_nothing():
    layer, x = BatchNorm(3), torch.randn(8, 3)
    order = torch.randperm(8)
    with BatchStatistics([layer]).of_batch():
        torch.testing.assert_close(layer(x)[order], layer(x[order]))


@pytest.mark.parametrize("steps", [0, WARM_UP], ids=["warming up", "renormalised"])
@pytest.mark.parametrize("kind", ["batch", "batch_first"])
@pytest.mark.parametrize("weighted", [False, True])
def test_loop_and_vmap_are_alike(kind, weighted, steps):
    found = []
    for backend in ("loop", "vmap"):
        torch.manual_seed(0)
        q = Ensemble(lambda: mlp(4, [6, 6], 2, norm=kind), 3, backend=backend)
        assert q.backend == backend and q.fallback is None
        for name, buffer in q.named_buffers():
            if name.endswith("steps"):
                buffer.fill_(steps)
        statistics = BatchStatistics(q.members, q.copies)
        x = torch.randn(10, 4)
        with statistics.of_batch(torch.full((10,), 0.1) if weighted else None):
            out = q(x)
        out.square().sum().backward()
        if backend == "loop":
            each = zip(*(member.parameters() for member in q.members), strict=True)
            gradients = [torch.stack([p.grad for p in alike]) for alike in each]
        else:
            gradients = [p.grad for p in q.parameters()]
        statistics.settle(TAKEN, unify=True)
        found.append([out, *gradients, *q.buffers(), *q.parameters(), q(x), q.frozen(x)])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


def test_what_was_seen_is_in_no_checkpoint_and_the_running_statistics_are():
    q = Ensemble(lambda: mlp(4, [6], 2, norm="batch"), 2)
    names = q.state_dict().keys()
    assert not [name for name in names if "seen" in name]
    assert {"0/mean", "0/var", "0/steps", "3/mean"} <= set(names)


def test_where_the_layers_stand():
    cross, xqc = mlp(3, [4, 4], 2, norm="batch"), mlp(3, [4, 4], 2, norm="batch_first")
    linear, norm, relu = NormedLinear, BatchNorm, nn.ReLU
    assert [type(x) for x in cross] == [norm, linear, relu, norm, linear, relu, norm, nn.Linear]
    assert [type(x) for x in xqc] == [norm, linear, norm, relu, linear, norm, relu, nn.Linear]
    assert xqc[1].bias is None and cross[1].bias is not None and xqc[7].bias is not None
    assert has_batch_norm(cross) and not has_batch_norm(mlp(3, [4], 2, norm="layer"))


def test_rows_of_length_one_by_hand():
    layer, norm = NormedLinear(2, 1, bias=False), of_one(mean=10.0, var=50.0)[0]
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[3.0, 4.0]]))
    layer.unify(SKIPPED, norm)
    assert layer.weight.tolist() == [[3.0, 4.0]]
    assert (float(norm.mean), float(norm.var)) == (10.0, 50.0)
    layer.unify(TAKEN, norm)
    torch.testing.assert_close(layer.weight.data, torch.tensor([[0.6, 0.8]]))
    torch.testing.assert_close(torch.stack([norm.mean, norm.var]), torch.tensor([[2.0], [2.0]]))


@pytest.mark.parametrize("kind", ["batch", "batch_first"])
def test_unit_rows_leave_the_output_as_it_is(kind, monkeypatch):
    monkeypatch.setattr(module, "EPSILON", 1e-9)
    torch.manual_seed(0)
    net = mlp(3, [8, 8], 2, norm=kind)
    with torch.no_grad():
        net[1].weight.mul_(3.0)
    statistics, x = BatchStatistics([net]), torch.randn(64, 3)
    with statistics.of_batch():
        before = net(x)
    alike = copy.deepcopy(net)  # with the same running statistics and rows of any length
    BatchStatistics([alike]).settle(TAKEN, unify=False)
    statistics.settle(TAKEN, unify=True)
    lengths = [
        torch.cat([layer.weight, layer.bias[:, None]] if layer.bias is not None else [layer.weight], 1)
        for layer in net
        if isinstance(layer, NormedLinear)
    ]
    for rows in lengths:
        torch.testing.assert_close(rows.norm(dim=1), torch.ones(len(rows)))
    torch.testing.assert_close(net(x), alike(x), atol=1e-4, rtol=1e-4)
    with statistics.of_batch():
        torch.testing.assert_close(net(x), before, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["batch", "batch_first"])
def test_every_parameter_has_a_gradient(kind):
    torch.manual_seed(0)
    net = mlp(3, [8, 8], 2, norm=kind).double()
    with BatchStatistics([net]).of_batch():
        net(torch.randn(64, 3).double()).square().sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad.abs().max() > 1e-9, name
