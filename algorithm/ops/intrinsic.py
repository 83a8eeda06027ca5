"""Intrinsic rewards: prediction errors and their scale."""

from __future__ import annotations

import torch
from torch import Tensor

from algorithm.ops.shapes import check_shapes

LEAST_DEVIATION = 1e-8
"""Smallest divisor: a deviation below it is rounding."""


def prediction_error(predicted: Tensor, actual: Tensor) -> Tensor:
    """Return half the squared distance: ``½ Σ_i (p_i − x_i)²`` (arXiv 1705.05363, equations 5 and 6).

    predicted, actual: [..., D]
    Returns [...].
    """
    check_shapes("prediction_error", actual.shape, {"predicted": predicted})
    return 0.5 * (predicted - actual).square().sum(-1)


def distillation_error(predicted: Tensor, features: Tensor) -> Tensor:
    """Return the distance of a trained network to a fixed random one: ``mean_i (p_i − f_i)²``.

    Random network distillation (arXiv 1810.12894, §2.2).

    predicted, features: [..., F]
    Returns [...].
    """
    check_shapes("distillation_error", features.shape, {"predicted": predicted})
    return (predicted - features).square().mean(-1)


def merge_moments(
    moments: tuple[Tensor, Tensor, Tensor], x: Tensor, valid: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return count, mean and sum of squared deviations, with more values in them.

    Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances (1979):
    δ = mean_x − mean, mean += δ n/(N + n), square += square_x + δ² N n/(N + n). If a value is not finite,
    none is taken, so that a single one cannot spoil the sums for ever.

    moments:  N, mean and square, [] each, in double precision
    x, valid: [B, T], of which only valid values count
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
    """Return ``σ = √(square / N)`` of :func:`merge_moments`; 1 while it is no more than rounding.

    count, square: []
    Returns [].
    """
    deviation = (square / count.clamp(min=1.0)).sqrt()
    return torch.where(deviation < LEAST_DEVIATION, torch.ones_like(deviation), deviation)
