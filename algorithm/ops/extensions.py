"""Losses and rewards of extensions: encodings, prediction errors and their scale, world models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from algorithm.ops.densities import HALF_LOG_2PI
from algorithm.ops.shapes import check_shapes, masked_mean, window_mean

LEAST_DEVIATION = 1e-8
"""Smallest divisor: a deviation below it is rounding."""

STD_RANGE = (0.1, 1.0)
"""Bounds of a standard deviation. Towards 0 a likelihood grows without bound, and the encoder with it."""


def info_nce_loss(logits: Tensor, weight: Tensor) -> Tensor:
    """Return ``mean_i log Σ_j exp(l_ij − max_k l_ik) − (l_ii − max_k l_ik)`` over the pairs that exist.

    This is the cross entropy of each anchor's own positive among those of all pairs (InfoNCE,
    arXiv 1807.03748, eq. 4; ATC, arXiv 2009.08319).

    logits: [P, P] fit of anchor i (row) and positive j (column)
    weight: [P] of each pair in the mean, see :func:`~algorithm.ops.shapes.masked_mean`; where it is 0 there
            is no pair, and neither row nor column has an effect
    Returns a scalar; log of the number of pairs where all fit equally well, 0 where there is no pair.
    """
    logits = _without_missing("info_nce_loss", logits, weight > 0)
    return masked_mean(logits.logsumexp(-1) - logits.diagonal(), weight)  # logsumexp takes the maximum out


def info_nce_accuracy(logits: Tensor, valid: Tensor) -> Tensor:
    """Return the share of anchors whose best match is their own positive, ``mean_i [argmax_j l_ij = i]``.

    By chance it is 1 / the number of pairs that exist.

    logits: as of :func:`info_nce_loss`
    valid:  [P] bool, pairs that exist
    """
    logits = _without_missing("info_nce_accuracy", logits, valid)
    positive = torch.arange(len(logits), device=logits.device)
    return masked_mean((logits.argmax(-1) == positive).to(logits.dtype), valid)


def cosine_loss(prediction: Tensor, target: Tensor) -> Tensor:
    """Return ``2 − 2 ⟨p, t⟩ / (‖p‖ ‖t‖)``, the squared distance of unit vectors.

    The loss of BYOL (arXiv 2006.07733, eq. 2).

    prediction, target: [..., P]
    Returns [...] from 0 (the same direction) to 4 (opposite ones).
    """
    check_shapes("cosine_loss", prediction.shape, {"target": target})
    return 2.0 - 2.0 * F.cosine_similarity(prediction, target, dim=-1)


def q_consistency_loss(q: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Return ``L = mean_{e,i} (Q_e − Q'_e)²`` over all critics e and positions i, window by window.

    Augmentation shall not change values, as in DrQ (arXiv 2004.13649).

    q:      [E, B, T]
    target: [E, B, T] without gradient
    valid:  [B, T]
    Returns a scalar; 0 where nothing is valid.
    """
    check_shapes("q_consistency_loss", q.shape, {"target": target})
    check_shapes("q_consistency_loss", q.shape[1:], {"valid": valid})
    return window_mean((q - target).square().mean(0), valid)


def _without_missing(function: str, logits: Tensor, valid: Tensor) -> Tensor:
    """Return the logits [P, P] with the columns of missing pairs so low that a softmax gives them 0.

    Raises ValueError, naming ``function``, for other shapes than [P, P] and [P].
    """
    size = len(valid)
    check_shapes(function, (size,), {"valid": valid})
    check_shapes(function, (size, size), {"logits": logits})
    return logits.masked_fill(~valid, torch.finfo(logits.dtype).min)


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
    """Return count, mean and sum of squared deviations after the valid values of ``x`` are added.

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
    new_mean = values.sum() / n.clamp(min=1)
    new_square = torch.where(taken, values - new_mean, 0.0).square().sum()
    delta, total = new_mean - mean, count + n
    share = n / total.clamp(min=1.0)
    return total, mean + delta * share, square + new_square + delta.square() * count * share


def standard_deviation(count: Tensor, square: Tensor) -> Tensor:
    """Return ``σ = √(square / N)`` of :func:`merge_moments`; 1 while it is below :data:`LEAST_DEVIATION`.

    count, square: []
    Returns [].
    """
    deviation = (square / count.clamp(min=1.0)).sqrt()
    return torch.where(deviation < LEAST_DEVIATION, torch.ones_like(deviation), deviation)


def bounded_std(raw: Tensor) -> Tensor:
    """Return ``σ = 0.1 + 0.9 · sigmoid(raw)``, a standard deviation within :data:`STD_RANGE`.

    raw: any shape. Returns the same shape.
    """
    low, high = STD_RANGE
    return low + (high - low) * raw.sigmoid()


def gaussian_nll(target: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return ``−log p = mean_i ½((x_i − μ_i)/σ_i)² + log σ_i + ½ log 2π`` of independent normals.

    target, mean, std: [..., S]
    Returns [...].
    """
    check_shapes("gaussian_nll", target.shape, {"mean": mean, "std": std})
    return (0.5 * ((target - mean) / std).square() + std.log()).mean(-1) + HALF_LOG_2PI


def standard_normal_kl(mean: Tensor, std: Tensor) -> Tensor:
    """Return ``KL(N(μ, σ²) ‖ N(0, 1)) = mean_i ½(μ_i² + σ_i² − 1) − log σ_i`` (arXiv 1312.6114, appendix B).

    mean, std: [..., S]
    Returns [...]; 0 only where every μ is 0 and every σ is 1.
    """
    check_shapes("standard_normal_kl", mean.shape, {"std": std})
    return (0.5 * (mean.square() + std.square() - 1.0) - std.log()).mean(-1)


def transition_loss(target: Tensor, mean: Tensor, std: Tensor, valid: Tensor, *, kl: float) -> Tensor:
    """Return ``L = mean_t −log N(s'_t; μ_t, σ_t²) + kl · KL(N(μ_t, σ_t²) ‖ N(0, 1))``, window by window.

    target:    [B, T, S] states that followed, without gradient
    mean, std: [B, T, S] of the predicted states
    valid:     [B, T]
    Returns a scalar.
    """
    check_shapes("transition_loss", target.shape[:-1], {"valid": valid})
    each = gaussian_nll(target, mean, std) + kl * standard_normal_kl(mean, std)
    return window_mean(each, valid)


def squared_error(prediction: Tensor, target: Tensor) -> Tensor:
    """Return ``ε = mean_i (x̂_i − x_i)²`` over all dimensions after the second.

    prediction, target: [B, T, ...]
    Returns [B, T].
    """
    check_shapes("squared_error", target.shape, {"prediction": prediction})
    return (prediction - target).square().reshape(*target.shape[:2], -1).mean(-1)


def choice_error(logits: Tensor, chosen: Tensor, categories: Sequence[int]) -> Tensor:
    """Return ``ε = mean_i −log softmax(logits_i)[c_i]``, the cross entropy of n choices among categories.

    logits:     [B, T, Σ categories], one choice after the other
    chosen:     [B, T, ...] of n elements, whole numbers counted from 0
    categories: of each of the n
    Returns [B, T].
    """
    lead = chosen.shape[:2]
    check_shapes("choice_error", (*lead, sum(categories)), {"logits": logits})
    element = chosen.reshape(*lead, len(categories)).long()
    errors = [
        F.cross_entropy(scores.flatten(0, 1), element[..., i].flatten(), reduction="none")
        for i, scores in enumerate(torch.split(logits, list(categories), -1))
    ]
    return torch.stack(errors).mean(0).view(lead)
