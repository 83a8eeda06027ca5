"""Losses of on-policy learning."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from algorithm.ops.shapes import check_shapes


def surrogate(log_ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """Return PPO's loss per transition, ``−min(ρA, clip(ρ, 1 ± ε)A)`` (arXiv 1707.06347, eq. 7).

    log_ratio: [M] log π − log μ of the whole action; advantage [M]; clip: ε, infinite for ``−ρA``
    """
    check_shapes("surrogate", log_ratio.shape, {"advantage": advantage})
    ratio = log_ratio.exp()
    plain = ratio * advantage
    if math.isinf(clip):
        return -plain
    return -torch.minimum(plain, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)


def value_error(value: Tensor, old: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """Return ``(V − R)²`` per transition (arXiv 1707.06347, eq. 9).

    value, old, target: [M]
    clip: c; the result is the larger of it and the same of V held within ±c of the old V
    """
    check_shapes("value_error", value.shape, {"old": old, "target": target})
    error = (value - target).square()
    if clip is None:
        return error
    held = old + (value - old).clamp(-clip, clip)
    return torch.maximum(error, (held - target).square())


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """Return ``k3 = (ρ − 1) − log ρ`` per transition, whose mean estimates KL(μ ‖ π) (Schulman 2020)."""
    return log_ratio.expm1() - log_ratio
