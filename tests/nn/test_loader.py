"""A user's ``nn.py``: what is found, what is left to defaults, and what a mistake looks like."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from algorithm.agents.off_policy.model import NETWORKS
from algorithm.core.errors import ModelError
from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn.loader import Network, load_networks

SPEC = AgentSpec(ObsSpec(("obs",), ((3,),), ("float32",)), ActionSpec(continuous=2))
HEAD = "import torch\nfrom torch import nn\nimport algorithm.nn as m\n"


@pytest.fixture
def write(tmp_path):
    def write(body: str) -> Path:
        file = tmp_path / "nn.py"
        file.write_text(HEAD + body)
        return file

    return write


def test_without_a_file_everything_is_default():
    networks = load_networks(SPEC, None, NETWORKS)
    assert networks.state_size == 3
    assert set(networks.sources.values()) == {"default"}


def test_default_sizes_come_from_the_configuration():
    networks = load_networks(SPEC, None, NETWORKS, rep={"dense_n": 5, "dense_depth": 1}, q={"dense_n": 7})
    assert networks.state_size == 5
    assert networks.make("ModelQ").net[0].weight.shape == (7, 5 + 2)


def test_several_observations_of_any_shape_are_concatenated():
    spec = AgentSpec(ObsSpec(("a", "b"), ((2, 2), ()), ("float32", "float32")), ActionSpec(continuous=1))
    assert load_networks(spec, None, NETWORKS).state_size == 5


def test_one_class_from_the_file_the_others_default(write):
    file = write(
        "class ModelRep(m.Rep):\n"
        "    def __init__(self, spec, width):\n"
        "        super().__init__(spec)\n"
        "        self.layer = nn.Linear(3, width)\n"
        "    def forward(self, obs, prev_action, carry, valid):\n"
        "        return self.layer(obs['obs']), carry\n"
    )
    networks = load_networks(SPEC, file, NETWORKS, rep={"width": 11})
    assert networks.state_size == 11
    assert networks.sources == {"ModelRep": "nn.py", "ModelQ": "default", "ModelPolicy": "default"}


def test_each_critic_starts_from_its_own_weights():
    networks = load_networks(SPEC, None, NETWORKS)
    a, b = networks.make("ModelQ"), networks.make("ModelQ")
    assert not torch.equal(a.net[0].weight, b.net[0].weight)


REP = "class ModelRep(m.Rep):\n    def forward(self, obs, prev_action, carry, valid):\n        return {}\n"
Q = (
    "class ModelQ(nn.Module):\n"
    "    def __init__(self, spec, state_size):\n        super().__init__()\n"
    "    def forward(self, state, c_action):\n        return {}\n"
)
POLICY = (
    "class ModelPolicy(nn.Module):\n"
    "    def __init__(self, spec, state_size):\n        super().__init__()\n"
    "    def forward(self, state, obs):\n        return {}\n"
)


@pytest.mark.parametrize(("body", "fragments"), [
    ("class ModelPolcy(nn.Module): pass", ["unknown model class ModelPolcy", "did you mean ModelPolicy?"]),
    ("ModelQ = (", ["SyntaxError: '(' was never closed", "to do  correct line 4 of ", "ModelQ = ("]),
    ("1 / 0", ["the import of nn.py failed", "ZeroDivisionError", "nn.py:4"]),
    ("class ModelRep(nn.Module):\n    def __init__(self, spec): super().__init__()",
     ["ModelRep", "must be a subclass of algorithm.nn.Rep"]),
    ("ModelQ = 3", ["ModelQ must be a subclass of torch.nn.Module"]),
    (REP.format("obs['obs']"), ["ModelRep.forward", "expected a pair (state, carry), got Tensor"]),
    (REP.format("obs['obs'][:, 0], carry"), ["ModelRep.forward", "state shape", "(2, 3, 'S')", "(2, 3)"]),
    (REP.format("obs['vector'], carry"), ["ModelRep.forward failed", "KeyError: 'vector'", "nn.py:6"]),
    (REP.format("obs['obs'].long(), carry"), ["state dtype", "expected torch.float32, got torch.int64"]),
    (Q.format("state"), ["ModelQ.forward", "wrong shape", "expected (2, 1), got (2, 3)"]),
    (POLICY.format("state"), ["ModelPolicy.forward", "expected HybridAction, got Tensor"]),
    (POLICY.format("m.HybridAction()"), ["continuous part", "expected TanhNormal"]),
    (
        POLICY.format("m.HybridAction(m.TanhNormal(state, state))"),
        ["shape of mean", "expected (2, 2), got (2, 3)"],
    ),
    ("class ModelQ(nn.Module):\n    pass", ["ModelQ.__init__ failed"]),
])  # fmt: skip
def test_mistakes_name_class_method_expected_and_got(write, body, fragments):
    file = write(body)
    with pytest.raises(ModelError) as caught:
        load_networks(SPEC, file, NETWORKS)
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert caught.value.exit_code == 2


OWN = "class ModelQ(nn.Module):\n    def __init__(self, spec, state_size, wide=4): super().__init__()\n"


@pytest.mark.parametrize(("body", "options", "fragments"), [
    ("", {"q": {"dense_m": 8}}, ["q has no key 'dense_m'", "the default ModelQ", "mean 'dense_n'?"]),
    ("", {"q": {"dense_n": 0}}, ["nn_config.q.dense_n is 0", "it should be greater", "leave it out"]),
    ("", {"q": {"dense_depth": -1}}, ["nn_config.q.dense_depth is -1", "greater than or equal to 0"]),
    ("", {"policy": {"hidden": [64, 0]}}, ["nn_config.policy.hidden is [64, 0]", "or equal to 1"]),
    ("", {"policy": {"activation": "swish"}}, ["policy.activation is 'swish'", "'gelu' or 'silu'"]),
    ("", {"policy": {"noisy": "yes"}}, ["nn_config.policy.noisy is 'yes'", "a valid boolean"]),
    ("", {"rep": {"conv": "natur"}}, ["rep.conv is 'natur'", "'simple', 'nature' or 'resnet'"]),
    ("", {"q": {"spec": 1}}, ["nn_config.q has no key 'spec'"]),
    (OWN, {"q": {"width": 8}}, ["q has no key 'width'", "of ModelQ are wide", "nn.py"]),
    ("class ModelQ(m.ModelQ): pass", {"q": {"dense_n": 0}}, ["nn_config.q.dense_n is 0"]),
])  # fmt: skip
def test_keywords_are_checked_before_anything_is_built(write, body, options, fragments):
    with pytest.raises(ModelError) as caught:
        load_networks(SPEC, write(body), NETWORKS, **options)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_a_number_may_be_spelt_in_any_way():
    networks = load_networks(SPEC, None, NETWORKS, q={"dense_n": 1e1}, policy={"hidden": ["8", 4.0]})
    assert networks.built["ModelQ"].net[0].out_features == 10
    assert networks.built["ModelPolicy"].net[2].out_features == 4


def test_the_family_says_which_classes_it_uses_and_which_it_must_get(write):
    classes = {"ModelValue": Network("value", lambda network, spec, size, where: None, default=None)}
    with pytest.raises(ModelError, match="unknown model class ModelQueue"):
        load_networks(SPEC, write("class ModelQueue(nn.Module): pass"), classes)
    with pytest.raises(ModelError, match=r"nn\.py lacks ModelValue") as caught:
        load_networks(SPEC, write("class ModelQ(nn.Module): pass  # another family's"), classes)
    assert "no default" in caught.value.why
    body = (
        "class ModelValue(nn.Linear):\n    def __init__(self, spec, size, out=1): super().__init__(size, out)"
    )
    networks = load_networks(SPEC, write(body), classes, value={"out": 2})
    assert networks.built["ModelValue"].weight.shape == (2, 3)
    assert networks.sources == {"ModelRep": "default", "ModelValue": "nn.py"}


MEMORY = (
    "class ModelRep(m.Rep):\n"
    "    {shapes}\n"
    "    def __init__(self, spec, **arguments):\n        super().__init__(spec)\n"
    "    def forward(self, obs, prev_action, carry, valid):\n"
    "        {body}\n"
)
BOTH = "carry_shape = stored_carry_shape = (3,)"
ONE = "carry_shape = (3,)"
SUM = "total = (obs['obs'] * valid.unsqueeze(-1)).cumsum(1) + carry.unsqueeze(1)"


@pytest.mark.parametrize(("seq_encoder", "shapes", "body", "fragments"), [
    (None, BOTH, f"{SUM}; return total, total", ["does not have the memory", "null", "(3,)"]),
    ("RNN", "pass", "return obs['obs'], carry", ["does not have the memory", "RNN", "(0,)"]),
    ("RNN", ONE, f"{SUM}; return total, total", ["not have the memory", "RNN", "shapes are the same"]),
    ("ATTN", BOTH, f"{SUM}; return total, total", ["does not have the memory", "ATTN", "a cache"]),
    ("RNN", BOTH, f"{SUM}; return total, carry", ["carry shape", "expected (2, 3, 3), got (2, 3)"]),
    ("RNN", BOTH, f"{SUM.replace(' * valid.unsqueeze(-1)', '')}; return total, total",
     ["tokens that do not exist", "hand `valid` on"]),
    ("ATTN", ONE, "return obs['obs'], carry", ["carry shape while acting", "(2, 1, 3)"]),
    ("ATTN", ONE, "s = obs['obs']; d = carry.dim() == 2 and carry.shape[1]; "
     "return (s.repeat(1, 1, 2), carry.unsqueeze(1)) if d else (s, carry)",
     ["state shape while acting", "expected (2, 1, 3), got (2, 1, 6)"]),
    ("RNN", "carry_shape = stored_carry_shape = [3]", f"{SUM}; return total, total",
     ["ModelRep.carry_shape is not a tuple", "[3]"]),
    ("RNN", f"{BOTH}\n    def initial_carry(self, n): return torch.ones(n, 3)", f"{SUM}; return total, total",
     ["initial_carry is not all zeros"]),
    ("RNN", BOTH, f"assert valid.all(); {SUM}; return total, total", ["ModelRep.forward failed", "nn.py:9"]),
    ("RNN", BOTH, f"{SUM} + 0.1 * torch.arange(valid.shape[1]).view(1, -1, 1); return total, total",
     ["tokens that do not exist"]),  # it counts slots
])  # fmt: skip
def test_a_memory_is_checked_against_what_is_configured(write, seq_encoder, shapes, body, fragments):
    with pytest.raises(ModelError) as caught:
        load_networks(
            SPEC, write(MEMORY.format(shapes=shapes, body=body)), NETWORKS, seq_encoder=seq_encoder, context=4
        )
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_a_recurrent_memory_of_ones_own_passes(write):
    file = write(MEMORY.format(shapes=BOTH, body=f"{SUM}; return total * valid.unsqueeze(-1), total"))
    assert load_networks(SPEC, file, NETWORKS, seq_encoder="RNN").state_size == 3


def test_a_bare_recurrent_layer_is_refused(write):
    """Zeros in place of padding do not help: its biases move the state all the same."""
    file = write(
        "class ModelRep(m.Rep):\n"
        "    carry_shape = stored_carry_shape = (1, 4)\n"
        "    def __init__(self, spec):\n"
        "        super().__init__(spec)\n        self.memory = nn.GRU(3, 4, batch_first=True)\n"
        "    def forward(self, obs, prev_action, carry, valid):\n"
        "        x = obs['obs'] * valid.unsqueeze(-1)\n"
        "        out, _ = self.memory(x, carry.transpose(0, 1).contiguous())\n"
        "        return out, out.unsqueeze(2)\n"
    )
    with pytest.raises(ModelError, match="tokens that do not exist"):
        load_networks(SPEC, file, NETWORKS, seq_encoder="RNN")


def test_a_representation_that_draws_random_numbers_passes(write):
    body = f"{SUM}; return total * valid.unsqueeze(-1) + torch.randn(total.shape), total"
    assert load_networks(SPEC, write(MEMORY.format(shapes=BOTH, body=body)), NETWORKS, seq_encoder="RNN")


def test_the_context_of_attention_cannot_be_set_by_hand():
    with pytest.raises(ModelError, match=r"nn_config\.rep\.context cannot be set"):
        load_networks(SPEC, None, NETWORKS, seq_encoder="ATTN", context=7, rep={"context": 3})


def test_attention_is_told_its_context_and_other_memories_are_not(write):
    told = write(
        "class ModelRep(m.Rep):\n"
        "    carry_shape = (1,)\n"
        "    def __init__(self, spec, context):\n"
        "        super().__init__(spec)\n        self.context = context\n"
        "    def forward(self, obs, prev_action, carry, valid):\n"
        "        return obs['obs'], carry.unsqueeze(1) if carry.shape[1] else carry\n"
    )
    assert load_networks(SPEC, told, NETWORKS, seq_encoder="ATTN", context=7).rep.context == 7
    networks = load_networks(SPEC, None, NETWORKS, seq_encoder="ATTN", context=7, rep={"attn_n": 8})
    assert networks.rep.carry_shape[0] == 6
    assert load_networks(SPEC, None, NETWORKS, seq_encoder="RNN", context=7).rep.carry_shape == (1, 64)


@pytest.mark.parametrize(("rep", "message"), [
    ({"rnn": "gur"}, "nn_config.rep.rnn is 'gur'"),
    ({"rnn_n": 0}, "nn_config.rep.rnn_n is 0"),
    ({"attn_n": 8}, "nn_config.rep has no key 'attn_n'"),
])  # fmt: skip
def test_wrong_arguments_of_the_default_memory_are_named(rep, message):
    with pytest.raises(ModelError) as caught:
        load_networks(SPEC, None, NETWORKS, seq_encoder="RNN", rep=rep)
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelError, match="not found"):
        load_networks(SPEC, tmp_path / "other.py", NETWORKS)


@pytest.mark.parametrize(
    ("options", "widths"),
    [
        ({}, [256, 256]),
        ({"dense_n": 8}, [8, 8]),
        ({"dense_depth": 1}, [256]),
        ({"hidden": [512, 32]}, [512, 32]),
    ],
)
def test_hidden_layers_are_counted_or_listed(options, widths):
    networks = load_networks(SPEC, None, NETWORKS, q=options, policy=options)
    for name in NETWORKS:
        layers = [layer for layer in networks.built[name].net if isinstance(layer, torch.nn.Linear)]
        assert [layer.out_features for layer in layers][: len(widths)] == widths
    with pytest.raises(ModelError, match=r"ModelQ\.__init__ failed") as caught:
        load_networks(SPEC, None, NETWORKS, q={"hidden": [8], "dense_n": 8})
    assert "leave dense_n and dense_depth out" in caught.value.why
