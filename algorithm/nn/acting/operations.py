"""Operations of torch in numpy, by their names in ATen; arguments are torch's, as arrays, and so are results.

Nothing is written into an argument. An argument that a function here does not have is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
Operation = Callable[..., Any]


def _clamp(x: Numbers, low: Numbers | float | None = None, high: Numbers | float | None = None) -> Numbers:
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _sigmoid(x: Numbers) -> Numbers:
    return 0.5 * np.tanh(0.5 * x) + 0.5


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
    "softplus": lambda x, beta=1: np.logaddexp(x.dtype.type(0), x * beta) / beta,
    "sqrt": np.sqrt,
    "square": np.square,
    "sub": np.subtract,
    "tanh": np.tanh,
}
"""Operations on one element of each array at a time. They compute in one type, that of torch's result."""


def _log_softmax(x: Numbers, dim: int) -> Numbers:
    shifted = x - np.maximum.reduce(x, dim, keepdims=True)
    return shifted - np.log(np.add.reduce(np.exp(shifted), dim, keepdims=True))


def _over(reduce: Operation) -> Operation:
    """Return a reduction over some dimensions, or over all of them."""
    return lambda x, dim=None, keepdim=False: reduce(x, dim, keepdims=keepdim)


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


def _index(x: Numbers, index: Sequence[Numbers | None]) -> Numbers:
    if any(one is not None and one.dtype.itemsize == 1 for one in index):
        raise NotImplementedError("a mask: the number of results depends on its values")
    return x[tuple(slice(None) if one is None else one for one in index)]


def _at(x: Numbers, dim: int, place: int | slice) -> tuple[int | slice, ...]:
    return (slice(None),) * (dim % x.ndim) + (place,)


def _split(x: Numbers, sizes: Sequence[int] | int, dim: int = 0) -> list[Numbers]:
    length = x.shape[dim]
    ends = [*range(0, length, sizes), length] if isinstance(sizes, int) else accumulate(sizes, initial=0)
    return [x[_at(x, dim, slice(start, end))] for start, end in pairwise(ends)]


SHAPED: Mapping[str, Operation] = {
    **dict.fromkeys(
        ("_unsafe_view", "reshape", "squeeze", "unsqueeze", "view"), lambda x, shape: x.reshape(shape)
    ),
    "expand": lambda x, shape: np.full(shape, x),  # numpy takes longer for a view
}
"""Operations on the first argument and the shape of torch's result."""

OPERATIONS: Mapping[str, Operation] = {
    "_to_copy": lambda x, **_: x,
    "all": _over(np.logical_and.reduce),
    "amax": _over(np.maximum.reduce),
    "amin": _over(np.minimum.reduce),
    "any": _over(np.logical_or.reduce),
    "argmax": _over(np.argmax),
    "argmin": _over(np.argmin),
    "bmm": np.matmul,
    "clone": lambda x, **_: x,
    "contiguous": np.ascontiguousarray,
    "cat": lambda parts, dim=0: np.concatenate(parts, dim),
    "embedding": lambda weight, index, padding=-1: weight[index],
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
    "select": lambda x, dim, index: x[_at(x, dim, index)],
    "slice": lambda x, dim=0, start=None, end=None, step=1: x[_at(x, dim, slice(start, end, step))],
    "softmax": lambda x, dim: np.exp(_log_softmax(x, dim)),
    "split": _split,
    "split_with_sizes": _split,
    "stack": lambda parts, dim=0: np.concatenate([np.expand_dims(one, dim) for one in parts], dim),
    "sum": _over(np.add.reduce),
    "t": np.transpose,
    "to": lambda x, *_, **__: x,
    "transpose": np.swapaxes,
    "unbind": lambda x, dim=0: list(np.moveaxis(x, dim, 0)),
    "where": lambda mask, x, y: np.where(mask, x, y),
}
"""Other operations. One that copies may return its argument: nothing is written into."""

KNOWN: Mapping[str, Operation] = {**ELEMENTWISE, **SHAPED, **OPERATIONS}
"""All of them."""
