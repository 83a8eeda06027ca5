"""Each operation of numpy is that of torch, with every type, shape and argument, or is refused."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from algorithm.nn.acting.operations import KNOWN
from algorithm.nn.acting.tracing import Tape
from tests.nn.test_numpy_program import programs

GRU = nn.GRU(4, 3, batch_first=True)
MEMORIES = {}, {"num_layers": 2}, {"bias": False}, {"bidirectional": True}
LAYERS = [make(4, 3, **options) for make in (nn.GRU, nn.LSTM) for options in MEMORIES]

ONE = "cos exp expm1 logical_not neg relu round sigmoid sign silu sin square tanh bitwise_not abs"
POSITIVE = "log log1p reciprocal rsqrt sqrt"
TWO = "add sub mul div eq ge gt le lt ne maximum minimum logical_and logical_or bitwise_and bitwise_or"


def of(name):
    return getattr(torch, name, None) or getattr(F, name, None) or getattr(torch.Tensor, name)


def on_positive(f):
    return lambda x: f(x.abs() + 1)


def on_one(f):
    return [lambda x, y, m: f(x), lambda x, y, m: f(x.transpose(0, 2)), lambda x, y, m: f(x[0, 0, 0])]


def on_two(f):
    return [
        lambda x, y, m: f(x, y),
        lambda x, y, m: f(x, y[0]),
        lambda x, y, m: f(x[:, :1], y.transpose(1, 0)[:2]),
        lambda x, y, m: f(x, 2),
        lambda x, y, m: f(x, 0.3),
        lambda x, y, m: f(x, y[0, 0, 0].double()),
        lambda x, y, m: f(x[0, 0, 0], y.to(torch.int32)),
        lambda x, y, m: f(x, y.to(torch.int16)),
        lambda x, y, m: f(m, x),
    ]


def over(f):
    """Cases of a reduction."""
    return [
        lambda x, y, m: f(x),
        lambda x, y, m: f(x, -1),
        lambda x, y, m: f(x, 1, keepdim=True),
        lambda x, y, m: f(m, 0),
        lambda x, y, m: f(x, (0, -1)),
        lambda x, y, m: f(x, (0, 2), keepdim=True),
    ]


CASES = {
    **{name: on_one(of(name)) for name in ONE.split()},
    **{name: on_one(on_positive(of(name))) for name in POSITIVE.split()},
    **{name: on_two(of(name)) for name in TWO.split()},
    "add": [
        *on_two(torch.add),
        lambda x, y, m: torch.add(x, y, alpha=2),
        lambda x, y, m: torch.add(x, 3, alpha=2),
        lambda x, y, m: (x * 1).add_(y[:, :1], alpha=3),
        lambda x, y, m: x + m,
    ],
    "sub": [*on_two(torch.sub), lambda x, y, m: torch.sub(x, y, alpha=2), lambda x, y, m: x.sub(y[0])],
    "rsub": [lambda x, y, m: 1.5 - x, lambda x, y, m: 1 - x, lambda x, y, m: torch.rsub(x, y, alpha=2)],
    "mul": [*on_two(torch.mul), lambda x, y, m: (x * 1).mul_(y[0])],
    "pow": [
        lambda x, y, m: x**2,
        lambda x, y, m: (x.abs() + 1) ** 0.5,
        lambda x, y, m: 2.0**x,
        lambda x, y, m: (x.abs() + 1).pow(y.abs()),
    ],
    "addcmul": [
        lambda x, y, m: torch.addcmul(x, y, x[0]),
        lambda x, y, m: torch.addcmul(x, y, x[0], value=2),
    ],
    "clamp": [
        lambda x, y, m: x.clamp(-0.5, 0.5),
        lambda x, y, m: x.clamp(min=1),
        lambda x, y, m: x.clamp(max=1),
        lambda x, y, m: x.clamp(1, 0),
        lambda x, y, m: x.clamp(y[0], y[0] + 1),
        lambda x, y, m: x.clamp(min=y[0, 0, 0].double()),
        lambda x, y, m: x.clamp(max=y),
        lambda x, y, m: (x * 1).clamp_(-0.5, 0.5),
    ],
    "clamp_min": on_two(torch.clamp_min)[:4],
    "clamp_max": on_two(torch.clamp_max)[:4],
    "elu": [lambda x, y, m: F.elu(x), lambda x, y, m: F.elu(x, 0.5), lambda x, y, m: F.selu(x)],
    "leaky_relu": [lambda x, y, m: F.leaky_relu(x), lambda x, y, m: F.leaky_relu(x, 0.3)],
    "relu": [*on_one(torch.relu), lambda x, y, m: (x * 1).relu_()],
    "lerp": [
        lambda x, y, m: x.lerp(y, 0.3),
        lambda x, y, m: x.lerp(y, x.abs()),
        lambda x, y, m: x.lerp(y[0], 0.9),
    ],
    "softplus": [
        lambda x, y, m: F.softplus(x),
        lambda x, y, m: F.softplus(30 * x, 2.0),
        lambda x, y, m: F.softplus(x, 1, 0.5),
        lambda x, y, m: F.softplus(x, beta=0.5, threshold=0.1),
    ],
    "bitwise_not": [lambda x, y, m: ~m, lambda x, y, m: ~x],
    "bitwise_and": [
        lambda x, y, m: torch.bitwise_and(m, x > 0),
        lambda x, y, m: torch.bitwise_and(x, 3),
        lambda x, y, m: m & True,
        lambda x, y, m: x & y,
    ],
    "bitwise_or": [
        lambda x, y, m: torch.bitwise_or(m, x > 0),
        lambda x, y, m: torch.bitwise_or(x, 3),
        lambda x, y, m: m | False,
        lambda x, y, m: x | y,
    ],
    "_to_copy": [lambda x, y, m: torch.ops.aten._to_copy(x, dtype=torch.float64)],
    "clone": [lambda x, y, m: x.clone().mul_(2) + x],
    "contiguous": [lambda x, y, m: x.transpose(0, 1).contiguous()],
    "to": [
        lambda x, y, m: m.to("cpu", torch.float64),
        lambda x, y, m: x.to(torch.float64, copy=True),
        lambda x, y, m: m.to(x),
        lambda x, y, m: x.to(torch.bool),
        lambda x, y, m: x.to(torch.int64),
        lambda x, y, m: m.float(),
        lambda x, y, m: m.type_as(x),
    ],
    "_unsafe_view": [lambda x, y, m: torch.ops.aten._unsafe_view(x, (6, -1))],
    "reshape": [lambda x, y, m: x.transpose(0, 1).reshape(4, -1), lambda x, y, m: x[0, 0, 0].reshape(1)],
    "squeeze": [
        lambda x, y, m: x[:, :1].squeeze(1),
        lambda x, y, m: x.squeeze(1),
        lambda x, y, m: x[:1, :1].squeeze(),
        lambda x, y, m: x[:1, :1].squeeze((0, 2)),
    ],
    "unsqueeze": [lambda x, y, m: x.unsqueeze(1), lambda x, y, m: x.unsqueeze(-1), lambda x, y, m: x[None]],
    "view": [
        lambda x, y, m: x.view(6, 4).view(-1),
        lambda x, y, m: x.view(torch.int8),
        lambda x, y, m: x.flatten(1),
        lambda x, y, m: x.flatten(-3, -2),
        lambda x, y, m: x.flatten(),
        lambda x, y, m: x.unflatten(-1, (2, 2)),
    ],
    "expand": [
        lambda x, y, m: x[:, :1].expand(2, 5, 4),
        lambda x, y, m: x[0, 0].expand(2, 5, -1) * 1,
        lambda x, y, m: x[0, 0, 0].expand(3),
        lambda x, y, m: x[0, 0].expand_as(y),
    ],
    "all": over(torch.all),
    "any": over(torch.any),
    "amax": over(torch.amax),
    "amin": over(torch.amin),
    "argmax": over(torch.argmax),
    "argmin": over(torch.argmin),
    "mean": over(torch.mean),
    "sum": [*over(torch.sum), lambda x, y, m: x.sum(-1, dtype=torch.float64), lambda x, y, m: x.sum([])],
    "bmm": [lambda x, y, m: torch.bmm(x, y.transpose(1, 2))],
    "mm": [lambda x, y, m: torch.mm(x[0], y[0].t())],
    "matmul": [lambda x, y, m: x @ y.transpose(1, 2) @ x[0], lambda x, y, m: x[0] @ y[0, 0]],
    "cat": [
        lambda x, y, m: torch.cat([x, y], -1),
        lambda x, y, m: torch.cat([x, m, y.double()]),
        lambda x, y, m: torch.cat([x, y.new_zeros(0)]),
    ],
    "embedding": [
        lambda x, y, m: F.embedding(m.to(torch.int64), x[0]),
        lambda x, y, m: F.embedding(m[0, 0].to(torch.int64), x[0], padding_idx=1),
    ],
    "sigmoid": [
        *on_one(torch.sigmoid),
        lambda x, y, m: torch.cat([one.flatten() for one in GRU(x, y[:1, :2, :3])]),
        lambda x, y, m: GRU(x[0])[1],
        *(partial(lambda layer, x, y, m: layer(x)[0], layer) for layer in LAYERS),
    ],
    "index": [
        lambda x, y, m: x[torch.arange(2), x[:, :, 0].argmax(1)],
        lambda x, y, m: x[:, torch.tensor([1, -1])],
        lambda x, y, m: x[m.to(torch.int64)[:, 0, 0], :, torch.tensor([0, 1])],
        lambda x, y, m: x[None, torch.tensor([0])],
        lambda x, y, m: x[m],
    ],
    "index_select": [
        lambda x, y, m: x.index_select(1, torch.tensor([2, 0])),
        lambda x, y, m: x.index_select(-1, torch.tensor([3])),
    ],
    "layer_norm": [
        lambda x, y, m: F.layer_norm(x, (3, 4)),
        lambda x, y, m: F.layer_norm(x, (4,), x[0, 0], y[0, 1], 0.1),
        lambda x, y, m: F.layer_norm(x, (4,), x[0, 0]),
    ],
    "linear": [lambda x, y, m: F.linear(x, y[0]), lambda x, y, m: F.linear(x[0, 0], y[1], y[0, :, 0])],
    "log_softmax": [
        lambda x, y, m: x.log_softmax(-1),
        lambda x, y, m: x.log_softmax(1),
        lambda x, y, m: x.log_softmax(0, dtype=torch.float64),
        lambda x, y, m: x.masked_fill(m, -torch.inf).log_softmax(-1),
    ],
    "masked_fill": [
        lambda x, y, m: x.masked_fill(m, -torch.inf),
        lambda x, y, m: (x * 1).masked_fill_(m[0], 3),
        lambda x, y, m: x.masked_fill(m, y[0, 0, 0]),
        lambda x, y, m: x[0].masked_fill(m, 2),
    ],
    "one_hot": [lambda x, y, m: F.one_hot(m.to(torch.int64), 3), lambda x, y, m: F.one_hot(m.long())],
    "permute": [lambda x, y, m: x.permute(2, 0, 1), lambda x, y, m: x.permute(-1, 0, 1).flatten()],
    "select": [lambda x, y, m: x[:, 1], lambda x, y, m: x.select(-2, -1)],
    "slice": [lambda x, y, m: x[:, 1:, ::2], lambda x, y, m: x[..., :2][:, -2:], lambda x, y, m: x[5:]],
    "softmax": [lambda x, y, m: x.softmax(-1), lambda x, y, m: F.softmax(x, 0, dtype=torch.float64)],
    "split": [
        lambda x, y, m: torch.cat(x.split(2, 1), -2),
        lambda x, y, m: torch.cat(x.chunk(2, -1), 1),
        lambda x, y, m: x.split(9, 0)[0],
    ],
    "split_with_sizes": [lambda x, y, m: torch.cat(torch.split(x, [1, 3], -1)[::-1], -1)],
    "stack": [
        lambda x, y, m: torch.stack([x], -1),
        lambda x, y, m: torch.stack([x, y], 1),
        lambda x, y, m: torch.stack([x, m]),
    ],
    "t": [lambda x, y, m: x[0].t(), lambda x, y, m: x[0, 0].t()],
    "transpose": [lambda x, y, m: x.transpose(1, -1)],
    "unbind": [lambda x, y, m: x.unbind(1)[2], lambda x, y, m: x.unbind(-1)[0]],
    "where": [
        lambda x, y, m: torch.where(m, x, y[0]),
        lambda x, y, m: torch.where(m, x, 2),
        lambda x, y, m: torch.where(m, 2.5, x),
        lambda x, y, m: torch.where(m, x, y.double()),
    ],
}
"""Functions of two arrays of numbers and one of bools, by the operation that they are about."""


def numbers(dtype, seed):
    drawn = torch.randn(2, 2, 3, 4, generator=torch.Generator().manual_seed(seed)) * 3
    return (drawn.abs() if dtype is torch.uint8 else drawn).to(dtype)


def names_of(function, inputs):
    with torch.inference_mode():
        found = Tape(lambda tensors: [function(*tensors)], inputs, KNOWN)
    return {call.name for call in found.calls}


@pytest.mark.parametrize("name", sorted(KNOWN))
@torch.no_grad()
def test_an_operation_is_that_of_torch(name):
    """Right or refused with every type; by numpy with float32 in at least one case, or with integers."""
    by_numpy = False
    for dtype in (torch.float32, torch.int64, torch.uint8, torch.bool):
        for case in CASES[name]:
            inputs = [[*numbers(dtype, seed), numbers(torch.float32, seed)[0] > 0] for seed in range(3)]
            try:
                expected = [case(*one).numpy() for one in inputs]
            except (RuntimeError, TypeError, ValueError, IndexError):  # torch has no such thing
                continue
            made, calls = programs(case)
            for one, result in zip(inputs, expected, strict=True):
                (found,) = made("a", [value.numpy() for value in one])
                assert found.dtype == result.dtype and found.shape == result.shape
                np.testing.assert_allclose(found, result, rtol=1e-5, atol=1e-6)
            if not isinstance(made._programs["a"], str):
                by_numpy = by_numpy or name in names_of(case, inputs[0])
                assert len(calls) == 3, "twice without values, once with them"
    assert by_numpy, "numpy has computed no case"
