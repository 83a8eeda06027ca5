"""A user's ``nn.py``: what is found, what is left to defaults, and what a mistake looks like."""

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


@pytest.mark.parametrize(
    ("options", "widths"),
    [
        ({}, [256, 256]),
        ({"dense_n": 1e1}, [10, 10]),  # a number may be spelt in any way
        ({"dense_depth": 1}, [256]),
        ({"hidden": ["512", 32]}, [512, 32]),
    ],
)
def test_without_a_file_everything_is_default_with_the_sizes_of_the_configuration(options, widths):
    networks = load_networks(SPEC, None, NETWORKS, rep={"dense_n": 5, "dense_depth": 1}, q=options)
    assert networks.state_size == 5 and set(networks.sources.values()) == {"default"}
    first, second = ([p for p in networks.make("ModelQ").parameters() if p.dim() == 2] for _ in range(2))
    assert [len(weight) for weight in first] == [*widths, 1]
    assert not torch.equal(first[0], second[0]), "each critic starts from its own weights"


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
MEMORY = (
    "class ModelRep(m.Rep):\n"
    "    {}\n"
    "    def __init__(self, spec, **arguments):\n        super().__init__(spec)\n"
    "    def forward(self, obs, prev_action, carry, valid):\n"
    "        {}\n"
)
BOTH = "carry_shape = stored_carry_shape = (3,)"
ONE = "carry_shape = (3,)"
SUM = "total = (obs['obs'] * valid.unsqueeze(-1)).cumsum(1) + carry.unsqueeze(1)"
RETURN = "return total, total"
GRU = (
    "class ModelRep(m.Rep):\n"
    "    carry_shape = stored_carry_shape = (1, 4)\n"
    "    def __init__(self, spec):\n"
    "        super().__init__(spec)\n        self.memory = nn.GRU(3, 4, batch_first=True)\n"
    "    def forward(self, obs, prev_action, carry, valid):\n"
    "        x = obs['obs'] * valid.unsqueeze(-1)\n"
    "        out, _ = self.memory(x, carry.transpose(0, 1).contiguous())\n"
    "        return out, out.unsqueeze(2)\n"
)
OWN = "class ModelQ(nn.Module):\n    def __init__(self, spec, state_size, wide=4): super().__init__()\n"


@pytest.mark.parametrize(("body", "options", "fragments"), [
    ("class ModelPolcy(nn.Module): pass", {}, ["unknown model class ModelPolcy", "ModelPolicy?"]),
    ("ModelQ = (", {}, ["SyntaxError: '(' was never closed", "line 4 of "]),
    ("1 / 0", {}, ["ZeroDivisionError", "nn.py:4"]),
    ("class ModelRep(nn.Module):\n    def __init__(self, spec): super().__init__()", {},
     ["ModelRep", "algorithm.nn.Rep"]),
    ("ModelQ = 3", {}, ["ModelQ", "torch.nn.Module"]),
    (REP.format("obs['obs']"), {}, ["ModelRep.forward", "expected a pair (state, carry), got Tensor"]),
    (REP.format("obs['obs'][:, 0], carry"), {}, ["state shape", "(2, 3, S), got (2, 3)"]),
    (REP.format("obs['vector'], carry"), {}, ["ModelRep.forward failed", "KeyError: 'vector'", "nn.py:6"]),
    (REP.format("obs['obs'].long(), carry"), {}, ["state dtype", "got torch.int64"]),
    (Q.format("state"), {}, ["ModelQ.forward", "expected (2, 1), got (2, 3)"]),
    (POLICY.format("state"), {}, ["ModelPolicy.forward", "expected HybridAction, got Tensor"]),
    (POLICY.format("m.HybridAction()"), {}, ["continuous part", "expected TanhNormal"]),
    (POLICY.format("m.HybridAction(m.TanhNormal(state, state))"), {}, ["mean", "(2, 2), got (2, 3)"]),
    ("class ModelQ(nn.Module):\n    pass", {}, ["ModelQ.__init__ failed"]),
    ("", {"q": {"dense_m": 8}}, ["nn_config.q has no key 'dense_m'", "the default ModelQ", "'dense_n'?"]),
    ("", {"q": {"dense_n": 0}}, ["nn_config.q.dense_n is 0"]),
    ("", {"policy": {"hidden": [64, 0]}}, ["nn_config.policy.hidden is [64, 0]"]),
    ("", {"policy": {"activation": "swish"}}, ["policy.activation is 'swish'", "'gelu' or 'silu'"]),
    ("", {"policy": {"noisy": "yes"}}, ["nn_config.policy.noisy is 'yes'"]),
    ("", {"rep": {"conv": "natur"}}, ["rep.conv is 'natur'"]),
    ("", {"q": {"spec": 1}}, ["nn_config.q has no key 'spec'"]),
    (OWN, {"q": {"width": 8}}, ["q has no key 'width'", "of ModelQ are wide", "nn.py"]),
    ("class ModelQ(m.ModelQ): pass", {"q": {"dense_n": 0}}, ["nn_config.q.dense_n is 0"]),
    ("", {"seq_encoder": "RNN", "rep": {"rnn": "gur"}}, ["nn_config.rep.rnn is 'gur'"]),
    ("", {"seq_encoder": "RNN", "rep": {"attn_n": 8}}, ["nn_config.rep has no key 'attn_n'"]),
    ("", {"seq_encoder": "ATTN", "rep": {"context": 3}}, ["nn_config.rep.context cannot be set"]),
    (MEMORY.format(BOTH, f"{SUM}; {RETURN}"), {}, ["does not have the memory", "null", "(3,)"]),
    (MEMORY.format("pass", "return obs['obs'], carry"), {"seq_encoder": "RNN"}, ["the memory", "(0,)"]),
    (MEMORY.format(ONE, f"{SUM}; {RETURN}"), {"seq_encoder": "RNN"}, ["the memory", "shapes are the same"]),
    (MEMORY.format(BOTH, f"{SUM}; {RETURN}"), {"seq_encoder": "ATTN"}, ["the memory", "a cache"]),
    (MEMORY.format(BOTH, f"{SUM}; return total, carry"), {"seq_encoder": "RNN"},
     ["carry shape", "expected (2, 3, 3), got (2, 3)"]),
    (MEMORY.format(BOTH, f"{SUM.replace(' * valid.unsqueeze(-1)', '')}; {RETURN}"), {"seq_encoder": "RNN"},
     ["tokens that do not exist"]),
    (MEMORY.format(BOTH, f"{SUM} + 0.1 * torch.arange(valid.shape[1]).view(1, -1, 1); {RETURN}"),
     {"seq_encoder": "RNN"}, ["tokens that do not exist"]),  # it counts slots
    (GRU, {"seq_encoder": "RNN"}, ["tokens that do not exist"]),  # its biases move the state all the same
    (MEMORY.format(ONE, "return obs['obs'], carry"), {"seq_encoder": "ATTN"},
     ["carry shape while acting", "(2, 1, 3)"]),
    (MEMORY.format(ONE, "s = obs['obs']; d = carry.dim() == 2 and carry.shape[1]; "
                   "return (s.repeat(1, 1, 2), carry.unsqueeze(1)) if d else (s, carry)"),
     {"seq_encoder": "ATTN"}, ["state shape while acting", "expected (2, 1, 3), got (2, 1, 6)"]),
    (MEMORY.format("carry_shape = stored_carry_shape = [3]", f"{SUM}; {RETURN}"), {"seq_encoder": "RNN"},
     ["ModelRep.carry_shape is not a tuple", "[3]"]),
    (MEMORY.format(f"{BOTH}\n    def initial_carry(self, n): return torch.ones(n, 3)", f"{SUM}; {RETURN}"),
     {"seq_encoder": "RNN"}, ["initial_carry is not all zeros"]),
    (MEMORY.format(BOTH, f"assert valid.all(); {SUM}; {RETURN}"), {"seq_encoder": "RNN"},
     ["ModelRep.forward failed", "nn.py:9"]),
])  # fmt: skip
def test_a_mistake_is_named_with_class_method_expected_and_got(write, body, options, fragments):
    with pytest.raises(ModelError) as caught:
        load_networks(SPEC, write(body), NETWORKS, context=4, **options)
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize("noise", ["", " + torch.randn(total.shape)"], ids=["the same", "random"])
def test_a_recurrent_memory_of_ones_own_passes(write, noise):
    file = write(MEMORY.format(BOTH, f"{SUM}; return total * valid.unsqueeze(-1){noise}, total"))
    assert load_networks(SPEC, file, NETWORKS, seq_encoder="RNN").state_size == 3


def test_the_family_says_which_classes_it_uses_and_which_it_must_get(write):
    classes = {"ModelValue": Network("value", lambda network, spec, size, where: None, default=None)}
    with pytest.raises(ModelError, match="unknown model class ModelQueue"):
        load_networks(SPEC, write("class ModelQueue(nn.Module): pass"), classes)
    with pytest.raises(ModelError, match=r"nn\.py lacks ModelValue"):
        load_networks(SPEC, write("class ModelQ(nn.Module): pass  # another family's"), classes)
    body = (
        "class ModelValue(nn.Linear):\n    def __init__(self, spec, size, out=1): super().__init__(size, out)"
    )
    networks = load_networks(SPEC, write(body), classes, value={"out": 2})
    assert networks.built["ModelValue"].weight.shape == (2, 3)
    assert networks.sources == {"ModelRep": "default", "ModelValue": "nn.py"}


def test_attention_gets_its_context_and_other_memories_do_not(write):
    own = write(
        "class ModelRep(m.Rep):\n"
        "    carry_shape = (1,)\n"
        "    def __init__(self, spec, context):\n"
        "        super().__init__(spec)\n        self.context = context\n"
        "    def forward(self, obs, prev_action, carry, valid):\n"
        "        return obs['obs'], carry.unsqueeze(1) if carry.shape[1] else carry\n"
    )
    assert load_networks(SPEC, own, NETWORKS, seq_encoder="ATTN", context=7).rep.context == 7
    networks = load_networks(SPEC, None, NETWORKS, seq_encoder="ATTN", context=7, rep={"attn_n": 8})
    assert networks.rep.carry_shape[0] == 6
    assert load_networks(SPEC, None, NETWORKS, seq_encoder="RNN", context=7).rep.carry_shape == (1, 64)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelError, match="not found"):
        load_networks(SPEC, tmp_path / "other.py", NETWORKS)
