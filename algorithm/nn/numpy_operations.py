"""Operations of torch in numpy, by their names in ATen; arguments and results are theirs, as arrays.

What torch says of devices, layouts and memory has no meaning here and is dropped before a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Numbers = NDArray[Any]
Operation = Callable[..., Any]
_Dtype = np.dtype[Any] | type[np.generic]
_Limit = Numbers | float | None

FREE = frozenset(
    {
        "alias.default",
        "detach.default",
        "detach_.default",
        "lift_fresh.default",
        "resolve_conj.default",
        "resolve_neg.default",
    }
)
"""Operations that return their argument."""


def _to(x: Numbers, dtype: _Dtype | None = None, *_: object, **__: object) -> Numbers:
    return x if dtype is None else x.astype(dtype)


def _linear(x: Numbers, weight: Numbers, bias: Numbers | None = None) -> Numbers:
    result = x @ weight.T
    if bias is not None:
        result += bias
    return result


def _clamp(x: Numbers, min: _Limit = None, max: _Limit = None) -> Numbers:
    if min is not None:
        x = np.maximum(x, min)
    return x if max is None else np.minimum(x, max)


def _clamp_(x: Numbers, min: _Limit = None, max: _Limit = None) -> Numbers:
    x[...] = _clamp(x, min, max)
    return x


def _masked_fill(x: Numbers, mask: Numbers, value: float) -> Numbers:
    return np.where(mask, x.dtype.type(value), x)


def _masked_fill_(x: Numbers, mask: Numbers, value: float) -> Numbers:
    np.copyto(x, x.dtype.type(value), where=mask)
    return x


def _log_softmax(x: Numbers, dim: int, *_: object) -> Numbers:
    shifted = x - np.maximum.reduce(x, dim, keepdims=True)
    result: Numbers = shifted - np.log(np.add.reduce(np.exp(shifted), dim, keepdims=True))
    return result


def _softmax(x: Numbers, dim: int, *_: object) -> Numbers:
    risen: Numbers = np.exp(x - np.maximum.reduce(x, dim, keepdims=True))
    risen /= np.add.reduce(risen, dim, keepdims=True)
    return risen


def _sum(x: Numbers, dim: Sequence[int] | None = None, keepdim: bool = False, **_: object) -> Numbers:
    return np.asarray(x.sum(None if dim is None else tuple(dim), keepdims=keepdim))


def _mean(x: Numbers, dim: Sequence[int] | None = None, keepdim: bool = False, **_: object) -> Numbers:
    return np.asarray(x.mean(None if dim is None else tuple(dim), keepdims=keepdim))


def _any(x: Numbers, dim: int, keepdim: bool = False) -> Numbers:
    found: Numbers = np.logical_or.reduce(x, dim, keepdims=keepdim)  # type: ignore[call-overload]  # a bool
    return found


def _argmax(x: Numbers, dim: int, keepdim: bool = False) -> Numbers:
    return np.asarray(x.argmax(dim, keepdims=keepdim))


def _scatter_(x: Numbers, dim: int, index: Numbers, value: float) -> Numbers:
    if x.ndim == 2 and dim in (1, -1):
        x[np.arange(len(x))[:, None], index] = value
    else:
        np.put_along_axis(x, index, value, dim)
    return x


def _gather(x: Numbers, dim: int, index: Numbers, **_: object) -> Numbers:
    return np.take_along_axis(x, index, dim)


def _add(x: Numbers, y: Numbers | float, alpha: float = 1) -> Numbers:
    return np.add(x, y if alpha == 1 else y * alpha)


def _sub(x: Numbers, y: Numbers | float, alpha: float = 1) -> Numbers:
    return np.subtract(x, y if alpha == 1 else y * alpha)


def _sigmoid(x: Numbers) -> Numbers:
    return 0.5 * np.tanh(0.5 * x) + 0.5


def _softplus(x: Numbers, beta: float = 1, threshold: float = 20) -> Numbers:
    result: Numbers = np.logaddexp(0.0, x * beta).astype(x.dtype) / beta
    return result


def _elu(x: Numbers, alpha: float = 1, *_: object) -> Numbers:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _layer_norm(
    x: Numbers,
    shape: Sequence[int],
    weight: Numbers | None = None,
    bias: Numbers | None = None,
    eps: float = 1e-5,
    *_: object,
) -> Numbers:
    axes = tuple(range(-len(shape), 0))
    centred: Numbers = x - x.mean(axes, keepdims=True)
    centred /= np.sqrt(np.square(centred).mean(axes, keepdims=True) + eps)
    if weight is not None:
        centred *= weight
    if bias is not None:
        centred += bias
    return centred


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
    if bidirectional or (training and dropout):
        raise NotImplementedError("a GRU in two directions, or with dropout")
    tokens = x.swapaxes(0, 1) if batch_first else x  # [T, N, F]
    size, states = 4 if biases else 2, []
    for layer in range(layers):
        w, v, *more = weights[size * layer : size * (layer + 1)]
        b, c = more or (0.0, 0.0)
        h, outputs = carry[layer], []
        for token in tokens:
            of_x, of_h = np.split(token @ w.T + b, 3, -1), np.split(h @ v.T + c, 3, -1)
            r, z = _sigmoid(of_x[0] + of_h[0]), _sigmoid(of_x[1] + of_h[1])
            n = np.tanh(of_x[2] + r * of_h[2])
            h = n + z * (h - n)
            outputs.append(h)
        tokens = np.stack(outputs)
        states.append(h)
    return tokens.swapaxes(0, 1) if batch_first else tokens, np.stack(states)


def _rand(shape: Sequence[int], *, generator: torch.Generator, **_: object) -> Numbers:
    return torch.rand(shape, generator=generator).numpy()


def _randn(shape: Sequence[int], *, generator: torch.Generator, **_: object) -> Numbers:
    return torch.randn(shape, generator=generator).numpy()


def _zeros(shape: Sequence[int], dtype: _Dtype = np.float32, **_: object) -> Numbers:
    return np.zeros(shape, dtype)


def _ones(shape: Sequence[int], dtype: _Dtype = np.float32, **_: object) -> Numbers:
    return np.ones(shape, dtype)


def _arange(end: int, dtype: _Dtype = np.int64, **_: object) -> Numbers:
    return np.arange(end, dtype=dtype)


def _expand(x: Numbers, sizes: Sequence[int], **_: object) -> Numbers:
    own = (1,) * (len(sizes) - x.ndim) + x.shape
    return _spread(x, [n if size == -1 else size for size, n in zip(sizes, own, strict=True)])


def _spread(x: Numbers, shape: Sequence[int]) -> Numbers:
    """Return a copy: numpy takes longer for a view."""
    result = np.empty(shape, x.dtype)
    result[...] = x
    return result


def _stack(parts: Sequence[Numbers], dim: int = 0) -> Numbers:
    return _unsqueeze(parts[0], dim) if len(parts) == 1 else np.stack(parts, dim)


def _unsqueeze(x: Numbers, dim: int) -> Numbers:
    return x[(slice(None),) * (dim % (x.ndim + 1)) + (None,)]


def _in_place(operation: Operation) -> Operation:
    return lambda x, *others: operation(x, *others, out=x)


_PAIRS: Mapping[str, Operation] = {
    "mul": np.multiply,
    "div": np.true_divide,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "__and__": np.bitwise_and,
    "__or__": np.bitwise_or,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "add": _add,
    "sub": _sub,
}
"""Operations of an array and another one or a number."""

_SINGLE: Mapping[str, Operation] = {
    "abs": np.abs,
    "bitwise_not": np.invert,
    "cos": np.cos,
    "elu": _elu,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "logical_not": np.logical_not,
    "neg": np.negative,
    "relu": lambda x: np.maximum(x, 0),
    "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "sin": np.sin,
    "softplus": _softplus,
    "sqrt": np.sqrt,
    "square": np.square,
    "tanh": np.tanh,
}
"""Operations of an array, and of numbers that are their options."""

OPERATIONS: Mapping[str, Operation] = {
    **{f"{name}.{kind}": made for name, made in _PAIRS.items() for kind in ("Tensor", "Scalar")},
    **{f"{name}.default": made for name, made in _SINGLE.items()},
    "add_.Tensor": lambda x, y, alpha=1: np.add(x, y if alpha == 1 else y * alpha, out=x),
    "addcmul.default": lambda x, y, z, value=1: x + value * y * z,
    "addmm.default": lambda bias, x, y, beta=1, alpha=1: beta * bias + alpha * (x @ y),
    "any.dim": _any,
    "arange.default": _arange,
    "argmax.default": _argmax,
    "bmm.default": np.matmul,
    "cat.default": lambda parts, dim=0: np.concatenate(parts, dim),
    "clamp.default": _clamp,
    "clamp_.default": _clamp_,
    "clone.default": lambda x, **_: x.copy(),
    "contiguous.default": lambda x, **_: np.ascontiguousarray(x),
    "expand.default": _expand,
    "expand_as.default": lambda x, y: _spread(x, y.shape),
    "gather.default": _gather,
    "gru.input": _gru,
    "index.Tensor": lambda x, index: x[tuple(slice(None) if one is None else one for one in index)],
    "index_select.default": lambda x, dim, index: np.take(x, index, dim),
    "layer_norm.default": _layer_norm,
    "lerp.Scalar": lambda x, y, weight: x + weight * (y - x),
    "lerp.Tensor": lambda x, y, weight: x + weight * (y - x),
    "linear.default": _linear,
    "linspace.default": lambda start, end, n, dtype=np.float32, **_: np.linspace(start, end, n, dtype=dtype),
    "log_softmax.int": _log_softmax,
    "masked_fill.Scalar": _masked_fill,
    "masked_fill_.Scalar": _masked_fill_,
    "matmul.default": np.matmul,
    "maximum.default": np.maximum,
    "mean.default": _mean,
    "mean.dim": _mean,
    "minimum.default": np.minimum,
    "mul_.Tensor": _in_place(np.multiply),
    "new_ones.default": lambda x, shape, dtype=None, **_: np.ones(shape, dtype or x.dtype),
    "new_zeros.default": lambda x, shape, dtype=None, **_: np.zeros(shape, dtype or x.dtype),
    "ones.default": _ones,
    "ones_like.default": lambda x, dtype=None, **_: np.ones(x.shape, dtype or x.dtype),
    "outer.default": np.multiply.outer,
    "rand.generator": _rand,
    "randn.generator": _randn,
    "relu_.default": lambda x: np.maximum(x, 0, out=x),
    "scatter_.value": _scatter_,
    "softmax.int": _softmax,
    "stack.default": _stack,
    "sum.default": _sum,
    "sum.dim_IntList": _sum,
    "to.device": lambda x, device, dtype=None, *_: _to(x, dtype),
    "to.dtype": _to,
    "to.dtype_layout": _to,
    "where.ScalarOther": lambda mask, x, y: np.where(mask, x, x.dtype.type(y)),
    "where.ScalarSelf": lambda mask, x, y: np.where(mask, y.dtype.type(x), y),
    "where.self": np.where,
    "zeros.default": _zeros,
    "zeros_like.default": lambda x, dtype=None, **_: np.zeros(x.shape, dtype or x.dtype),
}
"""Operations that make a new array, or write into one."""


def _slice(
    x: Numbers, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Numbers:
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def _flatten(x: Numbers, start_dim: int = 0, end_dim: int = -1) -> Numbers:
    start, end = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape(*x.shape[:start], -1, *x.shape[end + 1 :])


def _unflatten(x: Numbers, dim: int, sizes: Sequence[int]) -> Numbers:
    dim %= x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def _split(x: Numbers, sizes: Sequence[int], dim: int = 0) -> list[Numbers]:
    return np.split(x, np.cumsum(sizes)[:-1], dim)


def _chunk(x: Numbers, chunks: int, dim: int = 0) -> list[Numbers]:
    size = -(-x.shape[dim] // chunks)
    return np.split(x, range(size, x.shape[dim], size), dim)


VIEWS: Mapping[str, Operation] = {
    "chunk.default": _chunk,
    "flatten.using_ints": _flatten,
    "numpy_T.default": lambda x: x.T,
    "permute.default": lambda x, dims: x.transpose(dims),
    "reshape.default": lambda x, shape: x.reshape(shape),
    "select.int": lambda x, dim, index: x[(slice(None),) * (dim % x.ndim) + (index,)],
    "slice.Tensor": _slice,
    "split_with_sizes.default": _split,
    "squeeze.dim": lambda x, dim: x.squeeze(dim) if x.shape[dim] == 1 else x,
    "t.default": lambda x: x.T,
    "transpose.int": np.swapaxes,
    "unbind.int": lambda x, dim=0: list(np.moveaxis(x, dim, 0)),
    "unflatten.int": _unflatten,
    "unsqueeze.default": _unsqueeze,
    "view.default": lambda x, shape: x.reshape(shape),
}
"""Operations whose result shares memory with their argument."""
