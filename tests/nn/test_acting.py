"""Networks in numpy: the same as in torch, in step with it, or refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from algorithm.core.spec import ActionSpec, AgentSpec, ObsSpec
from algorithm.nn import GRU, AttentionRep, ModelPolicy, ModelQ, ModelRep, NoisyLinear, RecurrentRep
from algorithm.nn.acting import FORMS, ActingModel, NoFormError, form_of, network_form
from algorithm.nn.critic_only import BlindPolicy, CriticRep
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers.encode import OneHot, VectorEncoder
from algorithm.nn.layers.inverted import InvertedBlock
from algorithm.nn.layers.mlp import ActionHead, ResidualBlock
from algorithm.nn.layers.norm import BatchNorm, RmsNorm
from algorithm.nn.models.tanh import TanhPolicy
from algorithm.nn.normalise import NoNormaliser, Normaliser

HYBRID = ActionSpec((3, 2), 2)
SPEC = AgentSpec(
    ObsSpec(
        ("v", "bytes", "choice", "flag"),
        ((3,), (2, 2), (), (2,)),
        ("float64", "uint8", "int64", "bool"),
        categories=((), (), (5,), ()),
    ),
    HYBRID,
)
VECTOR = AgentSpec(ObsSpec(("v", "more"), ((3,), (2,)), ("float32", "float32")), HYBRID)
ALONE = AgentSpec(ObsSpec(("v",), ((3,),), ("float32",)), HYBRID)
IMAGE = ObsSpec(("image",), ((16, 16, 3),), ("uint8",))
N = 4
X, H = torch.randn(N, 3), torch.randn(N, 2, 6)


def obs_of(spec, seen=None):
    """Observations as networks get them, [N, 1, ...], or as an environment gives them."""
    g = torch.Generator().manual_seed(0)
    drawn = {
        name: (torch.rand(N, *shape, generator=g) * 5 - float(kind[0] == "f")).to(getattr(torch, kind))
        for name, shape, kind in spec.obs.items()
    }
    return drawn if seen is None else {name: x[:, None] for name, x in NoNormaliser()(drawn).items()}


def tokens(spec, carry=0):
    carries = torch.randn(N, *carry) if carry else torch.zeros(N, 0)
    return obs_of(spec, seen=True), torch.rand(N, 1, spec.action.size), carries, torch.ones(N, 1).bool()


def bounds_of_statistics(spec):
    made = Normaliser(spec.obs, 2.0)
    made.observe({name: x.numpy() for name, x in obs_of(spec).items()})
    return made


def recurrent():
    return RecurrentRep(SPEC, dense_n=8, dense_depth=1, rnn_n=6, rnn_depth=2)


def trained(norm):
    """Statistics of a batch, as an update leaves them."""
    for buffer in (norm.mean, norm.var):
        buffer.add_(torch.rand(buffer.shape))
    return norm


def noisy():
    layer = NoisyLinear(3, 4)
    layer.resample_noise()
    return layer


CASES = {
    nn.Sequential: (lambda: nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh()), X),
    nn.ModuleList: None,
    nn.Linear: (lambda: nn.Linear(3, 4), X),
    nn.LayerNorm: (lambda: nn.LayerNorm(3), 5 * X),
    nn.ReLU: (nn.ReLU, X),
    nn.Tanh: (nn.Tanh, X),
    nn.ELU: (lambda: nn.ELU(0.5), X),
    nn.SiLU: (nn.SiLU, X),
    GRU: (lambda: GRU(3, 6, 2), X[:, None], H, torch.ones(N, 1).bool()),
    NoNormaliser: (NoNormaliser, obs_of(SPEC)),
    Normaliser: (lambda: bounds_of_statistics(SPEC), obs_of(SPEC)),
    Ensemble: None,
    ActingModel: None,
    NoisyLinear: (noisy, X),
    BatchNorm: (lambda: trained(BatchNorm(3)), X),
    RmsNorm: (lambda: RmsNorm(3), X),
    ResidualBlock: (lambda: ResidualBlock(3), X),
    InvertedBlock: (lambda: InvertedBlock(3), X),
    ActionHead: (lambda: ActionHead(3, HYBRID, log_std="tanh"), X),
    VectorEncoder: (lambda: VectorEncoder(SPEC.obs), obs_of(SPEC, seen=True)),
    ModelRep: (lambda: ModelRep(SPEC, dense_n=8, dense_depth=1), *tokens(SPEC)),
    RecurrentRep: (recurrent, *tokens(SPEC, (2, 6))),
    CriticRep: (lambda: CriticRep(ModelRep(ALONE), ["more"]), *tokens(VECTOR)),
    ModelQ: (lambda: ModelQ(SPEC, 3, dense_n=8), X, X[:, :2]),
    ModelPolicy: (lambda: ModelPolicy(SPEC, 3, dense_n=8, noisy=True), X, {}),
    TanhPolicy: (lambda: TanhPolicy(SPEC, 3, log_std_init=1.0), X, {}),
    BlindPolicy: (lambda: BlindPolicy(TanhPolicy(SPEC, 2, std="state"), 2, ["more"]), X, {}),
}
COVERED = {"Flat", "OneHot"}
"""Layers of VectorEncoder's test."""


def flat(x):
    """All arrays of a result, one after the other."""
    if isinstance(x, torch.Tensor | np.ndarray):
        return [x.detach().numpy() if isinstance(x, torch.Tensor) else x]
    if isinstance(x, dict):
        return [y for name in sorted(x) for y in flat(x[name])]
    parts = x if isinstance(x, tuple) else vars(x).values() if x is not None else ()
    return [y for one in parts for y in flat(one)]


def arrays(x):
    return {k: arrays(v) for k, v in x.items()} if isinstance(x, dict) else x.numpy()


def check(module, form, inputs):
    with torch.no_grad():
        expected = flat(module(*inputs))
    found = flat(form(*map(arrays, inputs)))
    assert [(x.dtype, x.shape) for x in found] == [(x.dtype, x.shape) for x in expected] and found
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [kind for kind in FORMS if kind.__name__ not in COVERED], ids=str)
def test_a_form_is_its_module_and_what_is_written_into_tensors_is_seen(kind):
    if CASES[kind] is None:
        pytest.skip("test_actor has it")
    torch.manual_seed(0)
    make, *inputs = CASES[kind]
    module = make().eval()
    form = form_of(module)
    check(module, form, inputs)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.mul_(1.25).add_(0.125)
    module.load_state_dict({name: x + 0 for name, x in module.state_dict().items()})
    check(module, form, inputs)


def test_the_kinds_of_numbers_are_all_encoded():
    """Those of the specs above: floats, bytes, choices and bools."""
    assert {type(part).__name__ for part in VectorEncoder(SPEC.obs).parts} == COVERED
    assert FORMS.keys() == CASES.keys() | {type(part) for part in VectorEncoder(SPEC.obs).parts}
    assert any(isinstance(part, OneHot) for part in VectorEncoder(SPEC.obs).parts)


class Own(ModelPolicy):
    """A policy of the user's own."""

    def forward(self, state, obs):
        return super().forward(2 * state, obs)


def overridden():
    net = nn.Linear(3, 3)
    net.forward = torch.tanh
    return net


def hooked():
    net = nn.Linear(3, 3)
    net.register_forward_hook(lambda *_: None)
    return nn.Sequential(net)


REFUSED = {
    "a hook": (hooked, "a module has hooks"),
    "another forward of an object": (overridden, "torch.nn.modules.linear.Linear has no form in numpy"),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(3, 3)), "ParametrizedLinear"),
    "no torch.float32": (lambda: nn.Linear(3, 3).double(), "torch.float64"),
    "no weight": (lambda: nn.LayerNorm(3, elementwise_affine=False), "None"),
    "a convolution": (lambda: nn.Sequential(nn.Conv1d(3, 3, 1)), "torch.nn.modules.conv.Conv1d"),
    "attention": (lambda: AttentionRep(SPEC, 4), "algorithm.nn.models.defaults.AttentionRep"),
    "dropout": (lambda: nn.Dropout(), "torch.nn.modules.dropout.Dropout"),
    "images": (lambda: ModelRep(replace(SPEC, obs=IMAGE)), "ImageEncoder"),
    "a subclass": (lambda: Own(SPEC, 3), "tests.nn.test_acting.Own has no form in numpy"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_whatever_else_a_module_has_is_torch_s(name):
    make, why = REFUSED[name]
    with pytest.raises(NoFormError, match=why):
        form_of(make())


def test_a_network_of_the_user_s_own_is_computed_by_torch():
    module = Own(SPEC, 3)
    rows = X.numpy().copy()
    rows.flags.writeable = False
    expected, found = module(X, {}), network_form(module)(rows, {"v": rows})
    np.testing.assert_array_equal(found.continuous.mean, expected.continuous.mean.detach())
    np.testing.assert_array_equal(found.logits, expected.logits.detach())
