"""Intrinsic rewards: how badly something is predicted, and on what scale."""

from __future__ import annotations

import torch
from torch import Tensor

from algorithm.ops.shapes import check_shapes

LEAST_DEVIATION = 1e-8
"""Below this a deviation is rounding; nothing is divided by it."""


def prediction_error(predicted: Tensor, actual: Tensor) -> Tensor:
    """Half the squared distance: ``½ Σ_i (p_i − x_i)²`` (arXiv 1705.05363, equations 5 and 6).

    predicted, actual: [..., D]
    Returns [...].
    """
    check_shapes("prediction_error", actual.shape, {"predicted": predicted})
    return 0.5 * (predicted - actual).square().sum(-1)


def distillation_error(predicted: Tensor, features: Tensor) -> Tensor:
    """How far a trained network is from a fixed random one: ``mean_i (p_i − f_i)²`` (arXiv 1810.12894, §2.2).

    predicted, features: [..., F]
    Returns [...].
    """
    check_shapes("distillation_error", features.shape, {"predicted": predicted})
    return (predicted - features).square().mean(-1)


def merge_moments(
    moments: tuple[Tensor, Tensor, Tensor], x: Tensor, valid: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and sum of squared deviations, with more values in them.

    Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances (1979):
    δ = mean_x − mean, mean += δ n/(N + n), square += square_x + δ² N n/(N + n). Values are taken all or, if
    one of them is not finite, none, so that a single one cannot spoil the sums for ever.

    moments:  N, mean and square, [] each, in double precision
    x, valid: [B, T], of which only what is valid counts
    """
    check_shapes("merge_moments", x.shape, {"valid": valid})
    count, mean, square = moments
    taken = valid & torch.isfinite(torch.where(valid, x, 0.0)).all()
    values = torch.where(taken, x, 0.0).to(mean.dtype)
    n = taken.sum()
    own_mean = values.sum() / n.clamp(min=1)
    own_square = torch.where(taken, values - own_mean, 0.0).square().sum()
    delta, total = own_mean - mean, count + n
    share = n / total.clamp(min=1.0)
    return total, mean + delta * share, square + own_square + delta.square() * count * share


def standard_deviation(count: Tensor, square: Tensor) -> Tensor:
    """``σ = √(square / N)`` of what :func:`merge_moments` counted; 1 as long as there is none to speak of.

    count, square: []
    Returns [].
    """
    deviation = (square / count.clamp(min=1.0)).sqrt()
    return torch.where(deviation < LEAST_DEVIATION, torch.ones_like(deviation), deviation)
