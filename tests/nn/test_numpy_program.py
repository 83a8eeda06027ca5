"""Torch functions as numpy programs: each operation, and what makes a function torch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from algorithm.nn import numpy_program
from algorithm.nn.noisy import NoisyLinear
from algorithm.nn.numpy_operations import FREE, OPERATIONS, VIEWS
from algorithm.nn.numpy_program import NumpyPrograms

GRU = nn.GRU(4, 3, num_layers=2, batch_first=True)
BARE_GRU = nn.GRU(4, 3, bias=False)
GENERATOR = torch.Generator()


def _numbers():
    """A float [2, 3, 4] with both signs, and a bool."""
    values = torch.linspace(-2.0, 3.0, 24).view(2, 3, 4).sin()
    return values, values > 0.2


def _own(x):
    return x * 1.0


CASES = {
    "alias.default": lambda x, m: torch.ops.aten.alias(x),
    "detach.default": lambda x, m: x.detach(),
    "detach_.default": lambda x, m: _own(x).detach_(),
    "lift_fresh.default": lambda x, m: x + torch.tensor(3.0),
    "resolve_conj.default": lambda x, m: x.resolve_conj(),
    "resolve_neg.default": lambda x, m: x.resolve_neg(),
    "add.Tensor": lambda x, m: torch.add(x, x[0], alpha=2),
    "add.Scalar": lambda x, m: torch.ops.aten.add.Scalar(x, 2),
    "add_.Tensor": lambda x, m: _own(x).add_(x[:, :1], alpha=3),
    "sub.Tensor": lambda x, m: torch.sub(1.0, x) + (x - x[0]),
    "sub.Scalar": lambda x, m: torch.ops.aten.sub.Scalar(x, 2, 3),
    "mul.Tensor": lambda x, m: x * x[0] * 2,
    "mul.Scalar": lambda x, m: torch.ops.aten.mul.Scalar(x, 2),
    "mul_.Tensor": lambda x, m: _own(x).mul_(x[0]),
    "div.Tensor": lambda x, m: x / (x.abs() + 1),
    "div.Scalar": lambda x, m: torch.ops.aten.div.Scalar(x, 3),
    "gt.Tensor": lambda x, m: x > x[0],
    "gt.Scalar": lambda x, m: x > 0,
    "ge.Tensor": lambda x, m: x >= x[0],
    "ge.Scalar": lambda x, m: x >= 0.5,
    "lt.Tensor": lambda x, m: x < x[0],
    "lt.Scalar": lambda x, m: x < 0,
    "le.Tensor": lambda x, m: x <= x[0],
    "le.Scalar": lambda x, m: x <= 0,
    "eq.Tensor": lambda x, m: x == x[0],
    "eq.Scalar": lambda x, m: x == 0,
    "ne.Tensor": lambda x, m: x != x[0],
    "ne.Scalar": lambda x, m: x != 0,
    "__and__.Tensor": lambda x, m: m & (x > 0),
    "__and__.Scalar": lambda x, m: torch.ops.aten.__and__.Scalar(m, True),
    "__or__.Tensor": lambda x, m: m | (x < 0),
    "__or__.Scalar": lambda x, m: torch.ops.aten.__or__.Scalar(m, False),
    "bitwise_and.Tensor": lambda x, m: torch.bitwise_and(m, x > 0),
    "bitwise_and.Scalar": lambda x, m: torch.bitwise_and(m, True),
    "bitwise_or.Tensor": lambda x, m: torch.bitwise_or(m, x < 0),
    "bitwise_or.Scalar": lambda x, m: torch.bitwise_or(m, False),
    "abs.default": lambda x, m: x.abs(),
    "bitwise_not.default": lambda x, m: ~m,
    "cos.default": lambda x, m: x.cos(),
    "elu.default": lambda x, m: functional.elu(x),
    "exp.default": lambda x, m: x.exp(),
    "expm1.default": lambda x, m: x.expm1(),
    "log.default": lambda x, m: x.abs().log(),
    "log1p.default": lambda x, m: x.abs().log1p(),
    "logical_not.default": lambda x, m: m.logical_not(),
    "neg.default": lambda x, m: -x,
    "relu.default": lambda x, m: x.relu(),
    "sigmoid.default": lambda x, m: x.sigmoid(),
    "silu.default": lambda x, m: functional.silu(x),
    "sin.default": lambda x, m: x.sin(),
    "softplus.default": lambda x, m: functional.softplus(x * 20, 2.0),
    "rsqrt.default": lambda x, m: (x.abs() + 0.1).rsqrt(),
    "sqrt.default": lambda x, m: x.abs().sqrt(),
    "square.default": lambda x, m: x.square(),
    "tanh.default": lambda x, m: x.tanh(),
    "addcmul.default": lambda x, m: torch.addcmul(x, x, x[0], value=2),
    "addmm.default": lambda x, m: torch.addmm(x[0, 0, :3], x[0], x[1].t(), beta=2, alpha=3),
    "any.dim": lambda x, m: (m.any(-1, keepdim=True) | m.any(1, keepdim=True)) & m.any(0),
    "arange.default": lambda x, m: x + torch.arange(4),
    "argmax.default": lambda x, m: x.argmax(-1) + x.argmax(1, keepdim=True)[:, :, :3].sum(1),
    "bmm.default": lambda x, m: torch.bmm(x, x.transpose(1, 2)),
    "cat.default": lambda x, m: torch.cat([torch.cat([x, x], -1), torch.cat([x, x], 2)]),
    "clamp.default": lambda x, m: x.clamp(-0.5, 0.5) + x.clamp(min=0) + x.clamp(max=0.1),
    "clamp_.default": lambda x, m: _own(x).clamp_(-0.5, 0.5),
    "clone.default": lambda x, m: x.clone().mul_(2) + x,
    "contiguous.default": lambda x, m: x.transpose(0, 1).contiguous(),
    "expand.default": lambda x, m: x[:, :1].expand(2, 5, 4) + x[0, 0].expand(2, 5, -1),
    "expand_as.default": lambda x, m: x[0, 0].expand_as(x),
    "gather.default": lambda x, m: x.gather(1, x.argmax(1, keepdim=True)),
    "gru.input": lambda x, m: torch.cat([part.flatten() for part in (*GRU(x, x[:, :2, :3]), *BARE_GRU(x))]),
    "index.Tensor": lambda x, m: x[torch.arange(2), x[:, :, 0].argmax(1)] + x[:, torch.tensor([1, 1])][:, 0],
    "index_select.default": lambda x, m: x.index_select(1, torch.tensor([2, 0])),
    "layer_norm.default": lambda x, m: (
        functional.layer_norm(x, (3, 4)) + functional.layer_norm(x, (4,), x[0, 0], x[0, 1], 0.1)
    ),
    "lerp.Scalar": lambda x, m: x.lerp(x * 2, 0.3),
    "lerp.Tensor": lambda x, m: x.lerp(x * 2, x[0]),
    "linspace.default": lambda x, m: torch.linspace(-1.0, 2.0, 4) + x,
    "linear.default": lambda x, m: functional.linear(x, x[0]) + functional.linear(x, x[1], x[0, :, 0]),
    "log_softmax.int": lambda x, m: x.log_softmax(-1) + x.log_softmax(1),
    "masked_fill.Scalar": lambda x, m: x.masked_fill(m, -torch.inf),
    "masked_fill_.Scalar": lambda x, m: _own(x).masked_fill_(m, 3),
    "matmul.default": lambda x, m: x @ x.transpose(1, 2) @ x[0],
    "maximum.default": lambda x, m: torch.maximum(x, x[0]),
    "mean.default": lambda x, m: x + x.mean(),
    "mean.dim": lambda x, m: x.mean(1) + x.mean((0, 1), keepdim=True)[0],
    "minimum.default": lambda x, m: torch.minimum(x, x[0]),
    "new_ones.default": lambda x, m: x.new_ones(2, 1, 1) * x + m.new_ones(4),
    "new_zeros.default": lambda x, m: x.new_zeros(2, 0),
    "ones.default": lambda x, m: torch.ones(3, 1, dtype=torch.bool) & m,
    "ones_like.default": lambda x, m: torch.ones_like(x).mul_(x) + torch.ones_like(x, dtype=torch.bool),
    "outer.default": lambda x, m: x[0, 0].outer(x[0, 1]),
    "rand.generator": lambda x, m: torch.rand(x.shape, generator=GENERATOR),
    "randn.generator": lambda x, m: torch.randn(x.shape, generator=GENERATOR),
    "relu_.default": lambda x, m: _own(x).relu_(),
    "scatter_.value": lambda x, m: (
        torch.zeros_like(x).scatter_(1, x.argmax(1, keepdim=True), 1.0)[0]
        + torch.zeros_like(x[0]).scatter_(-1, x[0].argmax(-1, keepdim=True), 2.0)
    ),
    "softmax.int": lambda x, m: x.softmax(-1) + x.softmax(0),
    "stack.default": lambda x, m: torch.cat([torch.stack([x], -1), torch.stack([x, x], -1)], -1),
    "sum.default": lambda x, m: m.sum() + x,
    "sum.dim_IntList": lambda x, m: x.sum(-1) + x.sum((0, 2), keepdim=True)[0, :, 0] + m.sum(-1),
    "to.device": lambda x, m: m.to("cpu", torch.float64),
    "to.dtype": lambda x, m: m.to(torch.float64) + x.to(torch.float32),
    "to.dtype_layout": lambda x, m: x.to(torch.device("cpu")) + m.to(torch.device("cpu")),
    "where.ScalarOther": lambda x, m: torch.where(m, x, 2),
    "where.ScalarSelf": lambda x, m: torch.where(m, 2, x),
    "where.self": lambda x, m: torch.where(m, x, x[0]),
    "zeros.default": lambda x, m: torch.zeros(3, 1) + x,
    "zeros_like.default": lambda x, m: torch.zeros_like(x) + torch.zeros_like(x, dtype=torch.int64),
    "chunk.default": lambda x, m: torch.cat(x.chunk(2, -1)) + torch.cat(x.chunk(2, 1)[:1], 0)[0, :1, :2],
    "flatten.using_ints": lambda x, m: x.flatten(1) + x.flatten(0, 1).flatten()[:12],
    "numpy_T.default": lambda x, m: x[0].T,
    "permute.default": lambda x, m: x.permute(2, 0, 1),
    "reshape.default": lambda x, m: x.transpose(0, 1).reshape(4, -1),
    "select.int": lambda x, m: x[:, 1] + x.select(-2, 0),
    "slice.Tensor": lambda x, m: x[:, 1:, ::2] + x[..., :2][:, -2:],
    "split_with_sizes.default": lambda x, m: torch.cat(torch.split(x, [1, 3], -1), -1),
    "squeeze.dim": lambda x, m: x[:, :1].squeeze(1) + x.squeeze(1)[:, 0],
    "t.default": lambda x, m: x[0].t(),
    "transpose.int": lambda x, m: x.transpose(1, 2),
    "unbind.int": lambda x, m: x.unbind(1)[2] + x.unbind()[0][0],
    "unflatten.int": lambda x, m: x.unflatten(-1, (2, 2)),
    "unsqueeze.default": lambda x, m: x.unsqueeze(1) + x.unsqueeze(-1).unsqueeze(-3)[..., 0],
    "view.default": lambda x, m: x.view(6, 4).view(-1),
}
"""One function for each operation, which also uses others."""


def programs(function):
    """Programs of a function of tensors, and the list of its calls."""
    calls = []

    def counted(tensors):
        calls.append(1)
        return [function(*tensors)]

    return NumpyPrograms(counted, GENERATOR), calls


def test_each_operation_has_a_case():
    assert sorted(CASES) == sorted({*FREE, *OPERATIONS, *VIEWS})


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_an_operation_is_that_of_torch(name):
    x, mask = _numbers()
    made, calls = programs(CASES[name])
    recorder = numpy_program._Recorder([x, mask])
    with torch.inference_mode(), recorder:
        CASES[name](x, mask)
    assert f"aten.{name}" in {call.name for call in recorder.calls}, "the case is of another operation"
    for more in (x, x * 0.7, x.flip(0).contiguous(), x * 1.5):
        GENERATOR.manual_seed(3)
        expected = CASES[name](more, mask).numpy()
        GENERATOR.manual_seed(3)
        (found,) = made("a", [more.numpy(), mask.numpy()])
        assert found.dtype == expected.dtype and found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert len(calls) == 2, "numpy has not computed it"


def policy():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), NoisyLinear(8, 2))


ROWS = torch.linspace(-1.0, 1.0, 12).view(3, 4)


@torch.no_grad()
def test_what_is_written_into_parameters_is_seen():
    net = policy()
    made, calls = programs(net)
    for _ in range(4):
        np.testing.assert_allclose(made(3, [ROWS.numpy()])[0], net(ROWS).numpy(), rtol=1e-5)
        net[0].weight.mul_(1.5)
        net[2].resample_noise(GENERATOR)
        net.load_state_dict({name: value + 0.1 for name, value in net.state_dict().items()})
    assert len(calls) == 2


def test_each_number_of_rows_has_a_program_of_its_own():
    net = policy()
    made, calls = programs(net)
    for n in (3, 2, 3, 2, 3, 2):
        assert made(n, [ROWS[:n].numpy()])[0].shape == (n, 2)
    assert len(calls) == 4


def test_an_attribute_that_is_a_number_is_read_anew_from_time_to_time(monkeypatch):
    monkeypatch.setattr(numpy_program, "CHECKED", 4)
    factor = [1.0]
    made, calls = programs(lambda x: x * factor[0])
    found = []
    for n in range(16):
        factor[0] = 1.0 + n // 4
        found.append(made(0, [np.ones((1, 1), np.float32)])[0].item())
    # Compared at the calls 0 and 1, at 6, where it has changed, so at 7 again, and likewise at 12 and 13.
    assert found == [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 4, 4, 4, 4] and len(calls) == 6


BUFFER = torch.zeros(4)


@pytest.mark.parametrize(
    "function",
    [
        nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 1)),  # an operation that has no equal
        lambda x: x * 2 if x.sum() > 0 else x,  # what is done depends on the values
        lambda x: x + torch.rand(4, generator=GENERATOR) + torch.rand(4) * 0,  # another generator
        lambda x: x.to(torch.bfloat16).to(torch.float32),
        lambda x: x + BUFFER.add_(1),  # writes into what is not its own
        lambda x: x + torch.from_numpy(x.numpy() * 2),  # leaves torch on the way
    ],
    ids=["convolution", "condition", "generator", "bfloat16", "buffer", "numpy"],
)
@torch.no_grad()
def test_anything_else_is_torch_s(function):
    made, calls = programs(function)
    found, expected = [], []
    for result in (found, expected):
        GENERATOR.manual_seed(5)
        BUFFER.zero_()
        for sign in (1, -1, 1, -1, 1, -1):
            rows = (ROWS * sign).contiguous()
            result.append(made(3, [rows.numpy()])[0] if result is found else function(rows).numpy())
    np.testing.assert_array_equal(found, expected)
    assert len(calls) == 6


def test_arrays_that_may_not_be_written_into_are_read():
    made, _ = programs(policy())
    rows = ROWS.numpy().copy()
    rows.flags.writeable = False
    for _ in range(2):
        assert made(3, [rows])[0].shape == (3, 2)


def test_a_copy_of_a_parameter_is_made_anew():
    weight = torch.arange(6.0).view(2, 3)
    made, calls = programs(lambda x: x + weight.T.reshape(2, 3))
    for _ in range(4):
        expected = weight.T.reshape(2, 3).numpy()
        np.testing.assert_array_equal(made(0, [np.zeros((2, 3), np.float32)])[0], expected)
        weight.mul_(2.0)
    assert len(calls) == 2


def test_draws_that_nothing_is_made_of_are_drawn():
    made, calls = programs(lambda x: (torch.rand(3, generator=GENERATOR), x * 2)[1])
    GENERATOR.manual_seed(0)
    for _ in range(4):
        made(0, [np.ones(3, np.float32)])
    torch.testing.assert_close(torch.rand(1, generator=GENERATOR), draws(15)[12:13])
    assert len(calls) == 2


def test_what_differs_is_drawn_once():
    """Torch's result is taken, and the generator is where torch has left it."""
    size = [0]

    def function(x):
        return x * torch.rand(3 + size[0], generator=GENERATOR)[:3]

    made, _ = programs(function)
    found, expected, ones = [], [], np.ones(3, np.float32)
    for results in (found, expected):
        GENERATOR.manual_seed(0)
        for size[0] in range(6):
            result = made(0, [ones])[0] if results is found else function(torch.ones(3)).numpy()
            results.append(result)
    np.testing.assert_array_equal(found, expected)


def draws(n):
    """The first numbers of the seed 0, drawn in threes."""
    generator = torch.Generator().manual_seed(0)
    return torch.cat([torch.rand(3, generator=generator) for _ in range(n // 3)])


@pytest.mark.filterwarnings("error")
def test_the_logarithm_of_0_is_no_warning():
    made, calls = programs(lambda x: x.log())
    for _ in range(3):
        assert made(0, [np.zeros(2, np.float32)])[0].tolist() == [-np.inf] * 2
    assert len(calls) == 2


def test_recording_does_not_import_torch_s_compiler():
    """Which takes two seconds; torch wraps the method in what imports it."""
    method = numpy_program._Recorder.__torch_dispatch__
    assert method.__code__.co_filename == numpy_program.__file__
