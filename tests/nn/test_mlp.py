"""Blocks for vectors against torch's own layers, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from algorithm.agents.on_policy.networks import TanhPolicy, TanhValue
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn.layers.memories import AttentionRep, RecurrentRep
from algorithm.nn.layers.mlp import ACTIVATIONS, hidden_layers, mlp, residual_mlp
from algorithm.nn.layers.norm import BatchNorm, NormedLinear
from algorithm.nn.models.defaults import ModelPolicy, ModelQ, ModelRep
from algorithm.nn.protocols import q_size

SPEC = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(branches=(2,), continuous=2))


def test_layer_norm_stands_before_the_activation_and_not_behind_the_last_layer():
    net = mlp(3, [4, 4], 2, norm="layer")
    kinds = [nn.Linear, nn.LayerNorm, nn.ReLU, nn.Linear, nn.LayerNorm, nn.ReLU, nn.Linear]
    assert [type(layer) for layer in net] == kinds
    x = torch.randn(5, 3)
    h = x
    for linear in (net[0], net[3]):
        h = F.relu(F.layer_norm(F.linear(h, linear.weight, linear.bias), (4,)))
    torch.testing.assert_close(net(x), net[6](h))


def test_a_residual_block_adds_to_its_input():
    torch.manual_seed(0)
    net = residual_mlp(3, 4, 2, 2)
    x = torch.randn(5, 3)
    h = net[0](x)
    for block in (net[1], net[2]):
        _, first, _, second = block.net
        assert first.weight.shape == (16, 4)
        h = h + second(F.relu(first(F.layer_norm(h, (4,)))))
    torch.testing.assert_close(net(x), net[4](F.layer_norm(h, (4,))))


@pytest.mark.parametrize("options", [{}, {"norm": "layer"}, {"block": "residual"}])
@pytest.mark.parametrize("size", [{}, {"dense_n": 8, "dense_depth": 3}, {"hidden": [8, 8]}])
def test_default_networks_have_every_kind(options, size):
    torch.manual_seed(0)
    q, policy = ModelQ(SPEC, 3, **size, **options), ModelPolicy(SPEC, 3, **size, **options)
    assert q(torch.randn(7, 3), torch.randn(7, 2)).shape == (7, q_size(SPEC.action))
    found = policy(torch.randn(7, 3), {})
    assert found.logits.shape == (7, 2) and found.continuous.mean.shape == (7, 2)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_default_network_takes_an_activation(name):
    kinds = {type(make()) for make in ACTIVATIONS.values()}
    networks = (
        *(ModelQ(SPEC, 3, activation=name, **own) for own in ({}, {"norm": "batch"}, {"block": "residual"})),
        *(kind(SPEC, 3, activation=name) for kind in (ModelPolicy, TanhPolicy, TanhValue)),
        *(kind(SPEC, activation=name, dense_depth=1) for kind in (ModelRep, RecurrentRep)),
        AttentionRep(SPEC, 4, activation=name, dense_depth=1),
    )
    for network in networks:
        assert {type(layer) for layer in network.modules()} & kinds == {type(ACTIVATIONS[name]())}


def test_only_behind_relu_a_norm_takes_away_the_length_of_a_row():
    for activation, kept in ((nn.ReLU, True), (nn.Tanh, False)):
        layer, _, norm = mlp(3, [4], norm="batch", activation=activation)[1:]
        assert isinstance(layer, NormedLinear) is kept and isinstance(norm, BatchNorm)


def test_what_does_not_fit_is_refused():
    for options, message in (
        ({"norm": "group"}, "norm is 'group'; known: null, layer"),
        ({"block": "dense"}, "block is 'dense'; known: plain, residual"),
        ({"block": "residual", "norm": "layer"}, "leave norm: layer out"),
        ({"block": "residual", "hidden": [8, 4]}, "one width"),
        ({"block": "residual", "dense_depth": 0}, "one width"),
    ):
        with pytest.raises(ValueError, match=message):
            ModelQ(SPEC, 3, **options)
    with pytest.raises(ValueError, match="leave noisy out"):
        ModelPolicy(SPEC, 3, noisy=True, block="residual")


def test_nothing_set_is_the_plain_network():
    torch.manual_seed(0)
    plain = mlp(3, [4], 2)
    torch.manual_seed(0)
    same = hidden_layers(3, [4], 2)
    assert plain.state_dict().keys() == same.state_dict().keys()
    x = torch.randn(2, 3)
    assert torch.equal(plain(x), same(x))
