"""Blocks for vectors against torch's own layers, and what they refuse."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn import AttentionRep, ModelPolicy, ModelQ, ModelRep, NoisyLinear, RecurrentRep, inverted_mlp
from algorithm.nn.layers.mlp import ACTIVATIONS, ActionHead, mlp, residual_mlp
from algorithm.nn.layers.norm import BatchNorm, BatchStatistics
from algorithm.nn.models.tanh import TanhPolicy, TanhValue
from tests.nn.oracles import PlainNet

SPEC = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(branches=(2,), continuous=2))
LINEAR, RELU = nn.Linear, nn.ReLU
INVERTED = {"block": "inverted", "norm": "batch_first"}


@pytest.mark.parametrize(("options", "hidden", "last"), [
    ({}, [LINEAR, RELU], LINEAR),
    ({"norm": "layer"}, [LINEAR, nn.LayerNorm, RELU], LINEAR),
    ({"linear": NoisyLinear}, [NoisyLinear, RELU], NoisyLinear),
    ({"norm": "batch"}, [nn.Linear, RELU, BatchNorm], LINEAR),
    ({"norm": "batch_first"}, [nn.Linear, BatchNorm, RELU], LINEAR),
    ({"norm": "batch", "activation": nn.Tanh}, [LINEAR, nn.Tanh, BatchNorm], LINEAR),
])  # fmt: skip
def test_where_the_layers_stand(options, hidden, last):
    """Behind another activation than ReLU a norm does not take away the length of a row."""
    first = [BatchNorm] if BatchNorm in hidden else []
    net = mlp(3, [4, 5], 2, **options)
    assert [type(layer) for layer in net] == [*first, *hidden, *hidden, last]
    biased = [getattr(layer, "bias", None) is not None for layer in net if isinstance(layer, LINEAR)]
    assert biased == [options.get("norm") != "batch_first"] * (len(biased) - 1) + [True] * bool(biased)
    assert net(torch.randn(7, 3)).shape == (7, 2)


def test_a_residual_block_adds_to_its_input():
    net, x = residual_mlp(3, 4, 2, 2), torch.randn(5, 3)
    h = net[0](x)
    for block in (net[1], net[2]):
        _, first, _, second = block.net
        assert first.weight.shape == (16, 4)
        h = h + second(F.relu(first(F.layer_norm(h, (4,)))))
    torch.testing.assert_close(net(x), net[4](F.layer_norm(h, (4,))))


def test_an_inverted_block_adds_to_its_input_and_begins_orthogonal():
    net, x = inverted_mlp(3, 4, 2, 2), 3.0 * torch.randn(32, 3)
    for layer in net.modules():
        if isinstance(layer, nn.Linear):
            small = min(layer.weight.shape)
            square = (
                layer.weight @ layer.weight.T if len(layer.weight) == small else layer.weight.T @ layer.weight
            )
            torch.testing.assert_close(square, torch.eye(small))
            assert layer.bias is None or not layer.bias.any()
    plain = PlainNet(net)
    with BatchStatistics([net]).of_batch():
        torch.testing.assert_close(net(x), plain(x), atol=1e-6, rtol=1e-5)
    assert net[2].net[0].weight.shape == (16, 4)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_default_network_takes_an_activation(name):
    kinds = {type(make()) for make in ACTIVATIONS.values()}
    networks = (
        *(
            ModelQ(SPEC, 3, activation=name, **own)
            for own in ({}, {"norm": "batch"}, {"block": "residual"}, INVERTED)
        ),
        *(kind(SPEC, 3, activation=name) for kind in (ModelPolicy, TanhPolicy, TanhValue)),
        *(kind(SPEC, activation=name, dense_depth=1) for kind in (ModelRep, RecurrentRep)),
        AttentionRep(SPEC, 4, activation=name, dense_depth=1),
    )
    for network in networks:
        assert {type(layer) for layer in network.modules()} & kinds == {type(ACTIVATIONS[name]())}


@pytest.mark.parametrize(("kind", "options", "named"), [
    (ModelQ, {"norm": "group"}, "null, layer"),
    (ModelQ, {"block": "dense"}, "plain, residual"),
    (ModelQ, {"block": "residual", "norm": "layer"}, "leave norm: layer out$"),
    (ModelQ, {"block": "residual", "norm": "batch"}, "block: inverted with norm: batch_first"),
    (ModelQ, {"block": "inverted"}, "set norm: batch_first"),
    (ModelQ, {"block": "inverted", "norm": "batch"}, "set norm: batch_first"),
    (ModelQ, {**INVERTED, "hidden": [8, 4]}, "the same width"),
    (ModelPolicy, {**INVERTED, "noisy": True}, "leave noisy out"),
    (ModelQ, {"block": "residual", "hidden": [8, 4]}, "the same width"),
    (ModelQ, {"block": "residual", "dense_depth": 0}, "the same width"),
    (ModelQ, {"hidden": [8], "dense_n": 8}, "leave dense_n and dense_depth out"),
    (ModelPolicy, {"noisy": True, "block": "residual"}, "leave noisy out"),
    (ModelPolicy, {"noisy": True, "norm": "batch"}, "leave noisy out"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(kind, options, named):
    with pytest.raises(ValueError, match=named):
        kind(SPEC, 3, **options)


@pytest.mark.parametrize(("way", "low", "middle", "high", "slope"), [
    ("clamp", -20.0, 0.0, 2.0, [0.0, 1.0, 0.0]),
    ("tanh", -10.0, -4.0, 2.0, [0.0, 6.0, 0.0]),
])  # fmt: skip
def test_the_bounds_of_the_standard_deviation_by_hand(way, low, middle, high, slope):
    """tanh: −10 + 6 (1 + tanh x), whose slope 6 (1 − tanh² x) is never cut off."""
    head = ActionHead(1, ActionSpec(continuous=3), log_std=way)
    with torch.no_grad():
        head.continuous.weight.zero_()
        head.continuous.bias.copy_(torch.tensor([1.0, 2.0, 3.0, -1e4, 0.0, 1e4]))
    part = head(torch.zeros(2, 1)).continuous
    assert part.mean[0].tolist() == [1.0, 2.0, 3.0] and part.log_std[0].tolist() == [low, middle, high]
    (found,) = torch.autograd.grad(part.log_std[0].sum(), head.continuous.bias)
    assert found[3:].tolist() == slope


def test_an_unknown_bound_is_an_error():
    with pytest.raises(ValueError, match="log_std is 'exp'; known: clamp, tanh"):
        ModelPolicy(SPEC, 3, log_std="exp")
