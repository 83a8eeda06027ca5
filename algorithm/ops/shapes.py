"""Shape checks of losses, with errors that name the argument, and means over valid positions."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from functools import reduce

import torch
from torch import Tensor


def check_shapes(function: str, shape: tuple[int, ...], tensors: Mapping[str, Tensor]) -> None:
    """Raise ``ValueError`` naming the first tensor whose shape is not ``shape``.

    Equation: ``tensor.shape == shape`` for each; guards the broadcasting that hides most loss bugs.
    """
    for name, tensor in tensors.items():
        if tensor.shape != shape:
            raise ValueError(f"{function}: {name} must have shape {tuple(shape)}, got {tuple(tensor.shape)}")


def total(values: Iterable[Tensor]) -> Tensor:
    """Return ``Σ_i x_i`` of tensors of one shape; a single tensor is returned as it is."""
    return reduce(operator.add, values)


def valid_share(valid: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the weights of a mean over the valid entries of the last dimension: ``v_t / max(1, Σ_t v_t)``.

    ``(x * valid_share(valid)).sum(-1)`` is that mean. The weights have no gradient, so a loss needs two
    kernels only.

    valid: [..., T] bool, or weights from 0 to 1
    Returns [..., T] in ``dtype``; all 0 where nothing is valid.
    """
    mask = valid.to(dtype)
    return mask / mask.sum(-1, keepdim=True).clamp_(min=1.0)


def masked_mean(x: Tensor, valid: Tensor) -> Tensor:
    """Return the mean over the valid entries of the last dimension: ``Σ_t v_t x_t / max(1, Σ_t v_t)``.

    x:     [..., T]
    valid: [..., T] bool, or weights from 0 to 1 whose sum is 0 or at least 1
    Returns [...]; 0 where nothing is valid.
    """
    return (x * valid_share(valid, x.dtype)).sum(-1)


def window_share(valid: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the share of each position in :func:`window_mean`: ``1/B' v_bt / Σ_t v_bt``.

    valid: [B, T] bool or 0/1
    Returns [B·T], whose sum is 1; all 0 where nothing is valid.
    """
    return valid_share(valid_share(valid, dtype).flatten(), dtype)


def window_mean(x: Tensor, valid: Tensor) -> Tensor:
    """Return the mean of window means: ``1/B' Σ_b Σ_t v_bt x_bt / Σ_t v_bt`` over the B' nonempty windows.

    A window is drawn in proportion to its valid positions (see ``algorithm/replay/buffer.py``). With this
    mean every transition of an episode has the same weight, which a mean over all valid positions does not
    give.

    x:     [B, T]
    valid: [B, T] bool or 0/1
    Returns a scalar; 0 where nothing is valid.
    """
    return (x.flatten() * window_share(valid, x.dtype)).sum(-1)
