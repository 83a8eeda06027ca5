"""Operations of torch in numpy, by their names in ATen; arguments are torch's, as arrays, and so are results.

Nothing is written into an argument. An argument that a function here does not have is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Numbers = NDArray[Any]
Operation = Callable[..., Any]
_Limit = Numbers | float | None


def _clamp(x: Numbers, low: _Limit = None, high: _Limit = None) -> Numbers:
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _sigmoid(x: Numbers) -> Numbers:
    return 0.5 * np.tanh(0.5 * x) + 0.5


def _softplus(x: Numbers, beta: float = 1, threshold: float = 20) -> Numbers:
    scaled = x * beta
    result = np.logaddexp(scaled.dtype.type(0), scaled) / beta  # from 20 on that is x
    return result if threshold >= 20 else np.where(scaled > threshold, x, result)


ELEMENTWISE: Mapping[str, Operation] = {
    "abs": np.abs,
    "add": lambda x, y, alpha=1: x + (y if alpha == 1 else alpha * y),
    "addcmul": lambda x, y, z: x + y * z,
    "bitwise_and": np.bitwise_and,
    "bitwise_not": np.invert,
    "bitwise_or": np.bitwise_or,
    "clamp": _clamp,
    "clamp_max": np.minimum,
    "clamp_min": np.maximum,
    "cos": np.cos,
    "div": np.true_divide,
    "elu": lambda x, alpha=1: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "eq": np.equal,
    "exp": np.exp,
    "expm1": np.expm1,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "leaky_relu": lambda x, slope=0.01: np.where(x > 0, x, x * slope),
    "lerp": lambda x, y, weight: x + weight * (y - x),
    "log": np.log,
    "log1p": np.log1p,
    "logical_and": np.logical_and,
    "logical_not": np.logical_not,
    "logical_or": np.logical_or,
    "lt": np.less,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "pow": np.power,
    "reciprocal": lambda x: 1 / x,
    "relu": lambda x: np.maximum(x, 0),
    "round": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rsub": lambda x, y: np.subtract(y, x),
    "sigmoid": _sigmoid,
    "sign": np.sign,
    "silu": lambda x: x * _sigmoid(x),
    "sin": np.sin,
    "softplus": _softplus,
    "sqrt": np.sqrt,
    "square": np.square,
    "sub": np.subtract,
    "tanh": np.tanh,
}
"""Operations on one element of each array at a time. They compute in one type, that of torch's result."""


def _log_softmax(x: Numbers, dim: int) -> Numbers:
    shifted = x - np.maximum.reduce(x, dim, keepdims=True)
    result: Numbers = shifted - np.log(np.add.reduce(np.exp(shifted), dim, keepdims=True))
    return result


def _over(reduce: Operation) -> Operation:
    """Return a reduction over some dimensions, or over all of them."""
    return lambda x, dim=None, keepdim=False: reduce(x, dim, keepdims=keepdim)


def _along(x: Numbers, dim: int, index: Numbers) -> tuple[Numbers, Numbers]:
    """Return the places in ``x`` that ``index`` names in each row, or in the first ones."""
    if x.ndim != 2 or dim not in (1, -1):
        raise NotImplementedError("along another dimension than the second of two")
    return np.arange(len(index))[:, None], index


def _scatter(x: Numbers, dim: int, index: Numbers, value: Numbers | float) -> Numbers:
    result = x.copy()
    result[_along(x, dim, index)] = value
    return result


def _layer_norm(
    x: Numbers,
    shape: Sequence[int],
    weight: Numbers | float = 1,
    bias: Numbers | float = 0,
    eps: float = 1e-5,
) -> Numbers:
    axes = tuple(range(-len(shape), 0))
    centred: Numbers = x - x.mean(axes, keepdims=True)
    centred /= np.sqrt(np.square(centred).mean(axes, keepdims=True) + eps)
    return centred * weight + bias


def _gru(
    x: Numbers,
    carry: Numbers,
    weights: Sequence[Numbers],
    biases: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Numbers, Numbers]:
    """Return outputs and last states of layers one above the other: the gates r, z and n of torch's GRU."""
    if x.ndim != 3 or bidirectional or not biases or (training and dropout):
        raise NotImplementedError("packed tokens, two directions, no biases, or dropout")
    tokens = x.swapaxes(0, 1) if batch_first else x  # [T, N, F]
    states = []
    for layer in range(layers):
        w, v, b, c = weights[4 * layer : 4 * layer + 4]
        h, outputs = carry[layer], []
        for token in tokens:
            of_x, of_h = (_split(one, h.shape[-1], -1) for one in (token @ w.T + b, h @ v.T + c))
            r, z = _sigmoid(of_x[0] + of_h[0]), _sigmoid(of_x[1] + of_h[1])
            n = np.tanh(of_x[2] + r * of_h[2])
            h = n + z * (h - n)
            outputs.append(h)
        tokens = np.stack(outputs)
        states.append(h)
    return tokens.swapaxes(0, 1) if batch_first else tokens, np.stack(states)


def _index(x: Numbers, index: Sequence[Numbers | None]) -> Numbers:
    if any(one is not None and one.dtype.itemsize == 1 for one in index):
        raise NotImplementedError("a mask: the number of results depends on its values")
    return x[tuple(slice(None) if one is None else one for one in index)]


def _slice(
    x: Numbers, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Numbers:
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def _split(x: Numbers, sizes: Sequence[int] | int, dim: int = 0) -> list[Numbers]:
    lead, length = (slice(None),) * (dim % x.ndim), x.shape[dim]
    ends = [*range(0, length, sizes), length] if isinstance(sizes, int) else accumulate(sizes, initial=0)
    return [x[(*lead, slice(start, end))] for start, end in pairwise(ends)]


def _stack(parts: Sequence[Numbers], dim: int = 0) -> Numbers:
    if len(parts) > 1:
        return np.stack(parts, dim)
    return parts[0][(slice(None),) * (dim % (parts[0].ndim + 1)) + (None,)]


def _spread(x: Numbers, shape: Sequence[int]) -> Numbers:
    """Return a copy: numpy takes longer for a view."""
    result = np.empty(shape, x.dtype)
    result[...] = x
    return result


SAME: Mapping[str, Operation] = dict.fromkeys(("_to_copy", "clone", "to"), lambda x: x)
"""Operations that return their first argument, perhaps in another type: that of torch's result."""

SHAPED: Mapping[str, Operation] = {
    **dict.fromkeys(
        ("_unsafe_view", "reshape", "squeeze", "unsqueeze", "view"), lambda x, shape: x.reshape(shape)
    ),
    "expand": _spread,
}
"""Operations on the first argument and the shape of torch's result."""

OPERATIONS: Mapping[str, Operation] = {
    "all": _over(np.logical_and.reduce),
    "amax": _over(np.maximum.reduce),
    "amin": _over(np.minimum.reduce),
    "any": _over(np.logical_or.reduce),
    "argmax": _over(np.argmax),
    "argmin": _over(np.argmin),
    "bmm": np.matmul,
    "contiguous": np.ascontiguousarray,
    "cat": lambda parts, dim=0: np.concatenate(parts, dim),
    "embedding": lambda weight, index, padding=-1: weight[index],
    "gather": lambda x, dim, index: x[_along(x, dim, index)],
    "gru": _gru,
    "index": _index,
    "index_select": lambda x, dim, index: np.take(x, index, dim),
    "layer_norm": _layer_norm,
    "linear": lambda x, weight, bias=0: x @ weight.T + bias,
    "log_softmax": _log_softmax,
    "masked_fill": lambda x, mask, value: np.where(mask, x.dtype.type(value), x),
    "matmul": np.matmul,
    "mean": _over(np.mean),
    "mm": np.matmul,
    "one_hot": lambda x, n: x[..., None] == np.arange(n),
    "permute": np.transpose,
    "rand": lambda size, **options: torch.rand(size, **options).numpy(),
    "randn": lambda size, **options: torch.randn(size, **options).numpy(),
    "scatter": _scatter,
    "select": lambda x, dim, index: x[(slice(None),) * (dim % x.ndim) + (index,)],
    "slice": _slice,
    "softmax": lambda x, dim: np.exp(_log_softmax(x, dim)),
    "split": _split,
    "split_with_sizes": _split,
    "stack": _stack,
    "sum": _over(np.add.reduce),
    "t": np.transpose,
    "transpose": np.swapaxes,
    "unbind": lambda x, dim=0: list(np.moveaxis(x, dim, 0)),
    "where": lambda mask, x, y: np.where(mask, x, y),
}
"""Other operations."""

KNOWN: Mapping[str, Operation] = {**ELEMENTWISE, **SAME, **SHAPED, **OPERATIONS}
"""All of them."""
