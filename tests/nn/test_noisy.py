"""Noisy layers: the formula of the paper by hand, noise that stays until drawn, and none in a checkpoint."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers.mlp import mlp
from algorithm.nn.layers.noisy import LayerNoise, NoisyLinear
from algorithm.nn.learning.flat import FlatParameters
from algorithm.nn.models.defaults import ModelPolicy


def fixed_layer() -> NoisyLinear:
    layer = NoisyLinear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0]]))
        layer.weight_sigma.copy_(torch.tensor([[0.5, 1.0]]))
        layer.bias.fill_(0.1)
        layer.bias_sigma.fill_(0.2)
        layer.noise_in.copy_(torch.tensor([1.0, -2.0]))
        layer.noise_out.fill_(-3.0)
    return layer


def test_a_layer_by_hand():
    """Weights 1 + 0.5·(−3)·1 = −0.5 and 2 + 1·(−3)·(−2) = 8, bias 0.1 + 0.2·(−3) = −0.5."""
    layer = fixed_layer()
    assert layer(torch.tensor([1.0, 1.0])).item() == pytest.approx(-0.5 + 8.0 - 0.5)
    layer.zero_noise()
    assert layer(torch.tensor([1.0, 1.0])).item() == pytest.approx(1.0 + 2.0 + 0.1)


def test_gradients_by_hand():
    """dy/dσ_w = ε_out ε_in x, dy/dσ_b = ε_out."""
    layer = fixed_layer()
    layer(torch.tensor([1.0, 10.0])).backward()
    assert layer.weight.grad.tolist() == [[1.0, 10.0]]
    assert layer.weight_sigma.grad.tolist() == [[-3.0, 60.0]]
    assert (layer.bias.grad.item(), layer.bias_sigma.grad.item()) == (1.0, -3.0)


def test_noise_is_the_signed_root_of_a_normal_number():
    layer = NoisyLinear(3, 2)
    layer.resample_noise(torch.Generator().manual_seed(5))
    normal = torch.randn(5, generator=torch.Generator().manual_seed(5))
    noise = torch.cat([layer.noise_in, layer.noise_out])
    torch.testing.assert_close(noise, normal.sign() * normal.abs().sqrt())
    assert (noise < 0).any() and (noise > 0).any()


def test_initial_weights_are_those_of_the_paper():
    layer = NoisyLinear(16, 400)
    assert 0.24 < layer.weight.abs().max() <= 0.25 and 0.24 < layer.bias.abs().max() <= 0.25
    assert (layer.weight_sigma == 0.5 / 4).all() and (layer.bias_sigma == 0.5 / 4).all()


def test_noise_stays_until_it_is_drawn_and_is_in_no_checkpoint():
    layer, x = NoisyLinear(3, 2), torch.rand(4, 3)
    mean = layer(x)
    layer.resample_noise()
    assert torch.equal(layer(x), layer(x)) and not torch.equal(layer(x), mean)
    layer.zero_noise()
    assert torch.equal(layer(x), mean)
    assert set(layer.state_dict()) == {"weight", "bias", "weight_sigma", "bias_sigma"}


def test_blocks_are_built_of_them():
    net = mlp(3, [4, 4], 2, linear=NoisyLinear)
    assert [type(layer) for layer in net] == [NoisyLinear, nn.ReLU, NoisyLinear, nn.ReLU, NoisyLinear]


@pytest.mark.parametrize("depth", [0, 2])
def test_the_default_policy_is_noisy_if_told_so(depth):
    spec = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(branches=(2, 3), continuous=1))
    policy = ModelPolicy(spec, 3, dense_n=8, dense_depth=depth, noisy=True)
    assert sum(isinstance(part, NoisyLinear) for part in policy.modules()) == depth + 2
    assert not any(isinstance(part, nn.Linear) for part in policy.modules())
    LayerNoise([policy], on=True).apply(torch.Generator())
    state = torch.rand(5, 3)
    noisy = policy(state, {})
    LayerNoise([policy], on=False).apply(torch.Generator())
    mean = policy(state, {})
    assert not torch.equal(noisy.logits, mean.logits)
    assert not torch.equal(noisy.continuous.mean, mean.continuous.mean)
    assert not any(isinstance(part, NoisyLinear) for part in ModelPolicy(spec, 3).modules())


def test_noise_drawn_for_critics_reaches_both_back_ends():
    x, results = torch.rand(4, 3), []
    for backend in ("loop", "vmap"):
        torch.manual_seed(1)
        ensemble = Ensemble(lambda: NoisyLinear(3, 1), 3, backend=backend)
        FlatParameters([ensemble])
        mean = ensemble(x)
        LayerNoise(ensemble.members, on=True).apply(torch.Generator().manual_seed(2))
        results.append(ensemble(x))
        assert not torch.equal(results[-1], mean)
        torch.testing.assert_close(ensemble.frozen(x), results[-1])
    torch.testing.assert_close(*results)
