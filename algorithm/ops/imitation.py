"""Losses and rewards of a discriminator, and the loss of cloning."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from algorithm.ops.shapes import check_shapes

SURE = 1e-7
"""Added to 1 − D, so that its logarithm is bounded where D is sure."""


def discriminator_loss(expert: Tensor, policy: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``−log D(x_E)`` and ``−log(1 − D(x_π))``, D = σ(f) (arXiv 1606.03476, eq. 14, with E as 1).

    expert, policy: [P] logits f of demonstrated transitions, and of the policy's
    Returns two losses [P].
    """
    check_shapes("discriminator_loss", expert.shape, {"policy": policy})
    return functional.softplus(-expert), functional.softplus(policy)


def gradient_penalty(
    logit: Callable[[Mapping[str, Tensor]], Tensor],
    expert: Mapping[str, Tensor],
    policy: Mapping[str, Tensor],
    share: Tensor,
) -> Tensor:
    """Return ``(‖∇f(x)‖ − 1)²`` [P] at ``x = share x_E + (1 − share) x_π`` (arXiv 1704.00028, algorithm 1).

    logit: f [P] of inputs by name; share: [P] from 0 to 1
    expert, policy: name -> [P, ...] inputs, in pairs
    """
    between = {}
    for name, x_policy in policy.items():
        factor = share.view(-1, *[1] * (x_policy.dim() - 1))
        between[name] = factor * expert[name] + (1.0 - factor) * x_policy
    slopes = torch.func.grad(lambda inputs: logit(inputs).sum())(between)
    square = torch.stack([slope.flatten(1).square().sum(1) for slope in slopes.values()]).sum(0)
    return ((square + 1e-12).sqrt() - 1.0).square()


def gail_reward(logit: Tensor) -> Tensor:
    """Return ``−log(1 − D + 1e-7)`` of logits f, of any shape (arXiv 1606.03476).

    It is never below 0, so an episode that goes on earns more than one that ends.
    """
    return -(torch.sigmoid(-logit) + SURE).log()


def airl_reward(logit: Tensor) -> Tensor:
    """Return ``log D − log(1 − D) = f``, the logit itself, of either sign (arXiv 1710.11248, §6)."""
    return logit


def constraint_weight(value: Tensor, share: Tensor, *, alpha: float) -> Tensor:
    """Return ``λ = α / mean|Q(s, π(s))|``, the weight of a policy's loss beside cloning (arXiv 2106.06860).

    value: [P] the critics' Q of the policy's actions; it gets no gradient
    share: [P] of each position in the mean, with the sum 1
    Returns a scalar. A mean |Q| below 1e-6, as of untrained critics, counts as 1e-6.
    """
    check_shapes("constraint_weight", share.shape, {"value": value})
    return alpha / (value.detach().abs() * share).sum().clamp(min=1e-6)


def cloning_error(mean: Tensor, u: Tensor) -> Tensor:
    """Return ``Σ_i (m_i − u_i)² / |A_c|``, the squared error of a continuous action; 0 if A_c is 0.

    mean, u: [..., A_c]
    Returns [...].
    """
    check_shapes("cloning_error", u.shape, {"mean": mean})
    return (mean - u).square().sum(-1) / max(1, u.shape[-1])
