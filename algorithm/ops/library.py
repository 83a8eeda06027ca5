"""Functions of torch and of numpy by the same names, for what learns with tensors and acts with arrays.

An operation on a few numbers takes numpy one microsecond, and torch several. Operators, indices, ``sum``,
``mean`` and ``any`` are the same in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F


def of(x: Tensor | NDArray[Any]) -> Any:  # noqa: ANN401  # a namespace of functions
    """Return the library that computes with x: numpy for its arrays, else torch."""
    return NUMPY if isinstance(x, np.ndarray) else TORCH


def _one_hot(scores: Tensor) -> Tensor:
    choices = torch.arange(scores.shape[-1], device=scores.device)
    return (scores.argmax(-1, keepdim=True) == choices).to(scores.dtype)


@lru_cache
def _true(n: int) -> NDArray[np.bool_]:
    result = np.ones((n, 1), np.bool_)
    result.flags.writeable = False  # all actors have the same
    return result


def _log_softmax(x: NDArray[Any]) -> NDArray[Any]:
    shifted = x - np.maximum.reduce(x, -1, keepdims=True)
    result: NDArray[Any] = shifted - np.log(np.add.reduce(np.exp(shifted), -1, keepdims=True))
    return result


def _split(x: NDArray[Any], sizes: Sequence[int], dim: int) -> list[NDArray[Any]]:
    assert dim == -1, "np.split takes any, in four times the time"
    return [x[..., end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


_ZERO = np.float32(0.0)

TORCH = SimpleNamespace(
    exp=torch.exp,
    log=torch.log,
    log1p=torch.log1p,
    tanh=torch.tanh,
    square=torch.square,
    rsqrt=torch.rsqrt,
    softplus=F.softplus,
    log_softmax=lambda x: x.log_softmax(-1),
    linear=F.linear,
    add=torch.add,
    addcmul=torch.addcmul,
    lerp=torch.lerp,
    clip=torch.clamp,
    at_least=torch.clamp_min,
    where=torch.where,
    fill=Tensor.masked_fill,
    cat=torch.cat,
    split=torch.split,
    expand=Tensor.expand_as,
    to=Tensor.to,
    floats=lambda x: x.to(torch.get_default_dtype()),
    some=lambda mask: mask,
    true=lambda x: torch.ones(x.shape[0], 1, dtype=torch.bool, device=x.device),
    one_hot=_one_hot,
)
NUMPY = SimpleNamespace(
    exp=np.exp,
    log=np.log,
    log1p=np.log1p,
    tanh=np.tanh,
    square=np.square,
    rsqrt=lambda x: 1 / np.sqrt(x),
    softplus=lambda x: np.logaddexp(_ZERO, x),
    log_softmax=_log_softmax,
    linear=lambda x, weight, bias: x @ weight.T + bias,
    add=lambda x, y, alpha=1: x + alpha * y,
    addcmul=lambda x, y, z: x + y * z,
    lerp=lambda x, y, weight: x + weight * (y - x),
    at_least=np.maximum,
    clip=lambda x, low, high: np.minimum(np.maximum(x, low), high),
    where=np.where,
    fill=lambda x, mask, value: np.where(mask, x.dtype.type(value), x),
    cat=np.concatenate,
    split=_split,
    expand=lambda x, like: np.full(like.shape, x),
    to=np.ndarray.astype,
    floats=lambda x: x.astype(np.float32),
    some=lambda mask: None if mask.all() else mask,
    true=lambda x: _true(len(x)),
    one_hot=lambda x: (x.argmax(-1, keepdims=True) == np.arange(x.shape[-1])).astype(x.dtype),
)
"""``one_hot``: of the largest in the last dimension; ``some``: a mask, or None where all is true;
``true``: [N, 1] of N rows."""
