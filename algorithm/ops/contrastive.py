"""Losses between encodings: InfoNCE, cosine, and values of two encodings of one state."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from algorithm.ops.shapes import check_shapes, masked_mean, window_mean


def info_nce_loss(logits: Tensor, weight: Tensor) -> Tensor:
    """Return ``mean_i log Σ_j exp(l_ij − max_k l_ik) − (l_ii − max_k l_ik)`` over the pairs that exist.

    This is the cross entropy of each anchor's own positive among those of all pairs (InfoNCE,
    arXiv 1807.03748, eq. 4; ATC, arXiv 2009.08319).

    logits: [P, P] fit of anchor i (row) and positive j (column)
    weight: [P] of each pair in the mean, see :func:`~algorithm.ops.shapes.masked_mean`; where it is 0 there
            is no pair, and neither row nor column has an effect
    Returns a scalar; log of the number of pairs where all fit equally well, 0 where there is no pair.
    """
    logits = _of_pairs("info_nce_loss", logits, weight > 0)
    return masked_mean(logits.logsumexp(-1) - logits.diagonal(), weight)  # logsumexp takes the maximum out


def info_nce_accuracy(logits: Tensor, valid: Tensor) -> Tensor:
    """Return the share of anchors whose best match is their own positive, ``mean_i [argmax_j l_ij = i]``.

    By chance it is 1 / the number of pairs that exist.

    logits: as of :func:`info_nce_loss`
    valid:  [P] bool, pairs that exist
    """
    logits = _of_pairs("info_nce_accuracy", logits, valid)
    own = torch.arange(len(logits), device=logits.device)
    return masked_mean((logits.argmax(-1) == own).to(logits.dtype), valid)


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


def _of_pairs(function: str, logits: Tensor, valid: Tensor) -> Tensor:
    """Return finite logits, with those of missing positives too low for a share in a softmax."""
    size = len(valid)
    check_shapes(function, (size,), {"valid": valid})
    check_shapes(function, (size, size), {"logits": logits})
    return logits.masked_fill(~valid, torch.finfo(logits.dtype).min)
