"""Losses of a world model: transitions, rewards and observations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from algorithm.ops.densities import HALF_LOG_2PI
from algorithm.ops.shapes import check_shapes, window_mean

STD_RANGE = (0.1, 1.0)
"""Bounds of a standard deviation. Towards 0 a likelihood grows without bound, and the encoder with it."""


def bounded_std(raw: Tensor) -> Tensor:
    """Return ``σ = 0.1 + 0.9 · sigmoid(raw)``: any number -> a standard deviation within ``STD_RANGE``.

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
    mean, std: [B, T, S] of the predicted ones
    valid:     [B, T]
    Returns a scalar.
    """
    check_shapes("transition_loss", target.shape[:-1], {"valid": valid})
    each = gaussian_nll(target, mean, std) + kl * standard_normal_kl(mean, std)
    return window_mean(each, valid)


def squared_error(prediction: Tensor, target: Tensor) -> Tensor:
    """Return ``ε = mean_i (x̂_i − x_i)²`` over all dimensions behind the second.

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
    parts = [
        F.cross_entropy(part.flatten(0, 1), element[..., i].flatten(), reduction="none")
        for i, part in enumerate(torch.split(logits, list(categories), -1))
    ]
    return torch.stack(parts).mean(0).view(lead)
