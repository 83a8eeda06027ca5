"""Noisy layers: the formula of the paper by hand, noise that stays until drawn, and none in a checkpoint."""

import pytest
import torch
from torch import nn

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers.noisy import LayerNoise, NoisyLinear
from algorithm.nn.learning.flat import FlatParameters
from algorithm.nn.models.defaults import ModelPolicy


def test_a_layer_by_hand():
    """Weights 1 + 0.5·(−3)·1 = −0.5 and 2 + 1·(−3)·(−2) = 8, bias 0.1 + 0.2·(−3) = −0.5.

    dy/dσ_w = ε_out ε_in x, dy/dσ_b = ε_out.
    """
    layer, x = NoisyLinear(2, 1), torch.tensor([1.0, 10.0])
    given = {"weight": [[1.0, 2.0]], "weight_sigma": [[0.5, 1.0]], "bias": [0.1], "bias_sigma": [0.2]}
    layer.load_state_dict({name: torch.tensor(value) for name, value in given.items()})  # no noise in it
    assert layer(x).item() == pytest.approx(1.0 + 20.0 + 0.1)
    layer.noise_in.copy_(torch.tensor([1.0, -2.0]))
    layer.noise_out.fill_(-3.0)
    y = layer(x)
    assert y.item() == pytest.approx(-0.5 + 80.0 - 0.5)
    y.backward()
    assert layer.weight.grad.tolist() == [[1.0, 10.0]]
    assert layer.weight_sigma.grad.tolist() == [[-3.0, 60.0]]
    assert (layer.bias.grad.item(), layer.bias_sigma.grad.item()) == (1.0, -3.0)
    layer.zero_noise()
    assert layer(x).item() == pytest.approx(1.0 + 20.0 + 0.1)


def test_noise_is_the_signed_root_of_a_normal_number_and_stays():
    layer = NoisyLinear(3, 2)
    layer.resample_noise(torch.Generator().manual_seed(5))
    layer(torch.rand(4, 3))
    normal = torch.randn(5, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(
        torch.cat([layer.noise_in, layer.noise_out]), normal.sign() * normal.abs().sqrt()
    )


@pytest.mark.parametrize("depth", [0, 2])
def test_the_default_policy_is_noisy_where_asked_for(depth):
    spec = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(branches=(2, 3), continuous=1))
    policy, state = ModelPolicy(spec, 3, dense_n=8, dense_depth=depth, noisy=True), torch.rand(5, 3)
    kinds = [type(part) for part in policy.modules()]
    assert kinds.count(NoisyLinear) == depth + 2 and nn.Linear not in kinds
    found = []
    for on in (True, False):
        LayerNoise([policy], on=on).apply(torch.Generator())
        found.append(policy(state, {}))
    assert not torch.equal(found[0].logits, found[1].logits)
    assert not torch.equal(found[0].continuous.mean, found[1].continuous.mean)
    assert NoisyLinear not in map(type, ModelPolicy(spec, 3).modules())


def test_noise_drawn_for_critics_reaches_both_back_ends():
    x, results = torch.rand(4, 3), []
    for backend in ("loop", "vmap"):
        torch.manual_seed(1)
        ensemble = Ensemble(lambda: NoisyLinear(3, 1), 3, backend=backend)
        FlatParameters([ensemble])
        mean = ensemble(x)
        LayerNoise(ensemble.members, on=True).apply(torch.Generator().manual_seed(2))
        results += [ensemble(x), ensemble.frozen(x)]
        assert not torch.equal(results[-1], mean)
    for other in results[1:]:
        torch.testing.assert_close(results[0], other)
