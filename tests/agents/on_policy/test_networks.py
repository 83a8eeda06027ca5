"""Networks of on-policy families: one encoder or two, and their first values."""

import importlib
import math
import re

import pytest
import torch

from algorithm.agents.on_policy.rollout import make_rollout
from algorithm.config.schema import fields
from algorithm.core.errors import ModelError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn import LSTM, ModelRep
from algorithm.nn.layers.initial import set_orthogonal
from algorithm.nn.models.tanh import TanhPolicy, TanhValue
from tests.lib.on_policy import fill, make, train

IMAGES = "algorithm.env.toys:ToyCatch-v0"


def losses(agent, collector):
    """Log ratios and values of a rollout."""
    batch, nets = fill(agent, collector), agent.learner._actor_critic
    log_ratio, _, (value,) = nets.evaluate(make_rollout(batch, nets.values(batch)))
    return log_ratio.sum(), value.sum()


def reached(loss, module):
    """Whether the gradient of a loss reaches a module."""
    found = torch.autograd.grad(loss, [*module.parameters()], retain_graph=True, allow_unused=True)
    return any(one is not None and bool(one.any()) for one in found)


@pytest.mark.parametrize("shared", [True, False])
def test_errors_of_values_reach_the_policys_encoder_only_where_it_is_shared(shared):
    agent, collector = make(IMAGES, 2, shared=shared)
    policy_loss, value_loss = losses(agent, collector)
    encoder = agent.learner.model.rep
    assert reached(policy_loss, encoder) and reached(value_loss, encoder) == shared
    if not shared:
        own = agent.learner._actor_critic.value_encoder
        assert reached(value_loss, own) and not reached(policy_loss, own)
        assert set(agent.acting_parts()) == {"normaliser", "rep", "policy"}


def is_orthogonal(weight, gain):
    """Whether all singular values of a weight [out, in] are ``gain``."""
    sizes = torch.linalg.svdvals(weight.detach().flatten(1))
    return torch.allclose(sizes, torch.full_like(sizes, gain), atol=1e-5)


@pytest.mark.parametrize("action", [ActionSpec(branches=(3, 2)), ActionSpec(continuous=2)])
def test_first_weights_are_orthogonal_with_the_gains_of_the_37_details(action):
    spec = AgentSpec(ObsSpec(("obs",), ((5,),), ("float32",)), action)
    policy, value = TanhPolicy(spec, 5), TanhValue(spec, 5)
    for net in (policy.net, value.net):
        assert [layer.out_features for layer in net[::2]] == [64, 64]
        assert all(is_orthogonal(layer.weight, math.sqrt(2.0)) for layer in net[::2])
    head = policy.head.continuous or policy.head.discrete
    assert is_orthogonal(head.weight, 0.01) and is_orthogonal(value.last.weight, 1.0)
    biases = [p for name, p in [*policy.named_parameters(), *value.named_parameters()] if "bias" in name]
    assert len(biases) == 6 and not any(bias.any() for bias in biases)
    if action.continuous:
        assert policy.log_std is not None and policy.log_std.shape == (2,) and not policy.log_std.any()


def test_the_network_of_atari_is_that_of_the_37_details():
    """Mnih et al. 2015 with 512 units and ReLU; policy and value are a layer each (ppo_atari.py)."""
    obs = ObsSpec(("obs",), ((4, 84, 84),), ("uint8",), stacks=(4,))
    rep = ModelRep(AgentSpec(obs, ActionSpec(branches=(4,))), dense_n=512, conv="nature", bounded=False)
    (encoder,) = rep.images
    sizes = [tuple(layer.weight.shape) for layer in encoder.conv if hasattr(layer, "weight")]
    assert sizes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
    assert [type(layer).__name__ for layer in encoder.dense] == ["Linear", "ReLU"]
    assert tuple(encoder.dense[0].weight.shape) == (512, 64 * 7 * 7) and rep.out_size == 512
    policy = TanhPolicy(AgentSpec(obs, ActionSpec(branches=(4,))), 512, dense_depth=0)
    assert [tuple(p.shape) for p in policy.parameters()] == [(4, 512), (4,)]
    bright = torch.full((1, 1, 4, 84, 84), 255, dtype=torch.uint8)
    seen = []
    encoder.conv.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    rep.eval()({"obs": bright}, torch.zeros(1, 1, 4), torch.zeros(1, 0), torch.ones(1, 1, dtype=torch.bool))
    assert (seen[0] == 1.0).all() and seen[0].shape == (1, 4, 84, 84)


def test_normalised_observations_are_clipped_at_ten_deviations():
    agent, collector = make("Pendulum-v1", 2, sac={"use_normalization": True})
    train(agent, collector, 32)
    far = {"obs": torch.tensor([[1e6, -1e6, 0.0]])}
    assert agent.learner.model.normaliser(far)["obs"][0, :2].tolist() == [10.0, -10.0]


def test_the_page_about_the_37_details_names_what_exists(root):
    """Each item has its number, and functions, classes and keys that are there."""
    page = (root / "docs" / "families.md").read_text("utf-8")
    section = page.partition("## The 37 details\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]*`[^|]+) \|$", section, re.M)
    assert [int(number) for number, _ in rows] == [*range(1, 38)]
    keys = {".".join(path) for path, _ in fields()}
    for number, here in rows:
        named = re.findall(r"`([\w.]+)`", here)
        assert named, number
        for name in named:
            module, _, thing = name.rpartition(".")
            assert name in keys or hasattr(importlib.import_module(module), thing), f"{number}: {name}"


@pytest.mark.parametrize(
    ("sizes", "what", "why"),
    [
        ({"std": "states"}, "nn_config.policy.std is 'states'", "'parameter' or 'state'"),
        ({"log_std_init": -50}, "nn_config.policy.log_std_init is -50", "greater than or equal to -20"),
        ({"log_std_init": -1, "std": "state"}, "ModelPolicy.__init__ failed", "no parameter"),
    ],
)
def test_a_deviation_that_cannot_be_is_refused(sizes, what, why):
    with pytest.raises(ModelError) as caught:
        make("Pendulum-v1", sizes=sizes)
    assert what in caught.value.what and why in caught.value.why


def test_convolutions_and_memories_begin_orthogonal():
    conv, memory = torch.nn.Conv2d(3, 8, 4), LSTM(5, 4)
    for module in (conv, memory):
        set_orthogonal(module)
    assert is_orthogonal(conv.weight, math.sqrt(2.0)) and not conv.bias.any()
    parameters = dict(memory.layers[0].named_parameters())
    assert is_orthogonal(parameters["weight_ih_l0"], 1.0) and is_orthogonal(parameters["weight_hh_l0"], 1.0)
    assert not parameters["bias_ih_l0"].any() and not parameters["bias_hh_l0"].any()
