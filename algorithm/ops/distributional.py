"""Losses of critics that give a distribution of returns: quantiles, or a histogram.

Quantiles: QR-DQN (arXiv 1710.10044), truncated as in TQC (arXiv 2005.04269). Histogram: HL-Gauss
(arXiv 2403.03950), a scalar target spread over bins by a normal distribution; or C51 (arXiv 1707.06887), a
distribution projected onto them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from algorithm.ops.shapes import check_shapes


def midpoints(num: int, device: torch.device | None = None) -> Tensor:
    """Return the levels of K quantiles, ``τ_k = (k − ½)/K``: [K]."""
    return (torch.arange(num, device=device) + 0.5) / num


def truncated(z: Tensor, drop: int) -> Tensor:
    """Return the quantiles of M critics pooled and sorted, without the ``drop`` · M largest.

    The truncated mixture of TQC (arXiv 2005.04269, eq. 8).

    z: [M, K, P]; drop: below K. Returns the atoms [M·(K − drop), P], ascending.
    """
    kept = z.shape[0] * (z.shape[1] - drop)
    return z.flatten(0, 1).sort(0).values[:kept]


class _QuantileHuber(torch.autograd.Function):
    """Quantile Huber loss whose forward computes the gradient too: one pass over all pairs, not three."""

    @staticmethod
    @override
    def forward(theta: Tensor, atoms: Tensor, level: Tensor, kappa: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return the loss [E, P] of theta [E, K, P] against atoms [J, P], and its gradient by theta.

        level: [K] τ; kappa: κ > 0
        """
        level, atoms = level.view(-1, 1), atoms.contiguous()
        turned = 1.0 - 2.0 * level
        # |τ − 1{δ<0}| x = τ x + (1 − 2τ) x 1{δ<0}, of the gradient, x = cut, and of H, x = cut (δ − cut/2).
        # A critic at a time: the pairs of one fit into a cache.
        per_critic = []
        for quantiles in theta.contiguous():
            rest = atoms - quantiles.unsqueeze(1)  # [K, J, P] δ
            cut = rest.clamp(-kappa, kappa)
            below = cut.clamp(max=0.0)
            rest.sub_(cut, alpha=0.5)
            grad = level * cut.mean(1) + turned * below.mean(1)
            loss = level * cut.mul_(rest).mean(1) + turned * below.mul_(rest).mean(1)
            per_critic.append((loss.mean(0), grad))
        loss, grad = (torch.stack(each) for each in zip(*per_critic, strict=True))
        return loss / kappa, grad * (-1.0 / (kappa * theta.shape[1]))

    @staticmethod
    @override
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep the gradient, the second output of forward, for the backward pass."""
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient by theta [E, K, P] for that by the loss [E, P], ``grads[0]``."""
        (grad,) = ctx.saved_tensors
        return grads[0].unsqueeze(1) * grad, None, None, None


def quantile_huber(theta: Tensor, atoms: Tensor, level: Tensor, *, kappa: Tensor | float) -> Tensor:
    """Return ``mean_{k,j} |τ_k − 1{δ<0}| H_κ(δ)/κ``, ``δ = z_j − θ_k`` (arXiv 1710.10044, eq. 10).

    theta: [E, K, P] quantiles, with gradient
    atoms: [J, P]    of the target, without
    level: [K]       τ
    kappa: κ > 0, the size of δ from which the loss is linear
    Returns [E, P].
    """
    check_shapes("quantile_huber", theta.shape[2:], {"atoms": atoms[0]})
    check_shapes("quantile_huber", theta.shape[1:2], {"level": level})
    loss, _ = _QuantileHuber.apply(theta, atoms, level, kappa)  # type: ignore[no-untyped-call]
    huber: Tensor = loss
    return huber


def histogram(y: Tensor, edges: Tensor, *, sigma: float) -> Tensor:
    """Return a normal's mass around y in each bin: ``p_i = [Φ((e_{i+1} − y)/σ) − Φ((e_i − y)/σ)]/Z``.

    y:     [P] within the edges
    edges: [K + 1] ascending
    sigma: σ > 0
    Returns p [K, P], whose sum over bins is 1 (HL-Gauss, arXiv 2403.03950, eq. 6).
    """
    below = torch.erf((edges.unsqueeze(-1) - y) / (sigma * math.sqrt(2.0)))
    mass = below[1:] - below[:-1]
    return mass / (below[-1] - below[0])


def cross_entropy(log_probs: Tensor, mass: Tensor) -> Tensor:
    """Return ``−Σ_i p_i log q_i`` of predictions log q [E, K, P] and a target p [K, P]: [E, P]."""
    check_shapes("cross_entropy", log_probs.shape[1:], {"mass": mass})
    return -(log_probs * mass).sum(1)
