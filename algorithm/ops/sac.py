"""Losses of Soft Actor-Critic (arXiv 1801.01290, 1812.05905; REDQ arXiv 2101.05982), and priorities."""

from __future__ import annotations

from torch import Tensor

from algorithm.ops.shapes import check_shapes, masked_mean, valid_share

MAX_SHARE = 0.9
"""Weight of the largest error in a sequence's priority (R2D2, section 2.3, η = 0.9)."""


def smallest(q: Tensor) -> Tensor:
    """Return the minimum over critics [M, ...] (arXiv 1802.09477, section 4.2): [...]."""
    return q.min(0).values


def average(q: Tensor) -> Tensor:
    """Return the mean over critics [M, ...] (arXiv 2209.10081, section 5.2): [...]."""
    return q.mean(0)


def critic_loss(q: Tensor, target: Tensor, weight: Tensor, valid: Tensor) -> Tensor:
    """Return ``½ Σ_e mean_B w · mean_t (Q_e − y)²`` over valid positions (arXiv 1812.05905, eq. 5).

    q:      [E, B, T] of the taken actions
    target: [B, T]    y, without gradient
    weight: [B]       importance-sampling weights of the replay
    valid:  [B, T]
    Returns a scalar.
    """
    check_shapes("critic_loss", q.shape[1:], {"target": target, "valid": valid})
    check_shapes("critic_loss", q.shape[1:2], {"weight": weight})
    return _weighted((q - target).square(), weight, valid)


def clipped_critic_loss(
    q: Tensor, target: Tensor, q_target: Tensor, weight: Tensor, valid: Tensor, *, epsilon: float
) -> Tensor:
    """Return a critic loss with predictions clipped to ±ε around the target network's.

    ``½ Σ_e mean w · mean_t max((Q − y)², (Q' + clamp(Q − Q', ±ε) − y)²)``: the Q-clip of arXiv 2209.10081,
    section 5.2, which is PPO's clip of values (arXiv 1707.06347) for Q.

    q, q_target:           [E, B, T] of the taken actions; q_target without gradient
    target, weight, valid: as in :func:`critic_loss`
    Returns a scalar.
    """
    check_shapes("clipped_critic_loss", q.shape[1:], {"target": target, "valid": valid})
    check_shapes("clipped_critic_loss", q.shape[1:2], {"weight": weight})
    check_shapes("clipped_critic_loss", q.shape, {"q_target": q_target})
    clipped = q_target + (q - q_target).clamp(-epsilon, epsilon)
    return _weighted((q - target).square().maximum((clipped - target).square()), weight, valid)


def clip_binds(q: Tensor, target: Tensor, q_target: Tensor, *, epsilon: float) -> Tensor:
    """Return the mask of Q without gradient in :func:`clipped_critic_loss`, more than ε beyond Q'.

    ``|Q − Q'| > ε and (Q' ± ε − y)² > (Q − y)²``, of the Q-clip of arXiv 2209.10081, section 5.2.

    q, target, q_target: as there
    Returns [E, B, T] bool.
    """
    q = q.detach()
    clipped = q_target + (q - q_target).clamp(-epsilon, epsilon)
    beyond = (q - q_target).abs() > epsilon  # within, both are Q but for rounding
    return beyond & ((clipped - target).square() > (q - target).square())


def policy_loss(logp: Tensor, value: Tensor, alpha: Tensor, share: Tensor) -> Tensor:
    """Return ``mean α log π(u|s) − Q(s, u)``, u reparameterised (arXiv 1812.05905, eq. 9).

    logp:  [P] of the fresh action
    value: [P] reduced Q of it
    alpha: scalar, without gradient
    share: [P] of each position in the mean, with the sum 1; see :func:`~algorithm.ops.shapes.window_share`
    Returns a scalar.
    """
    check_shapes("policy_loss", logp.shape, {"value": value, "share": share})
    return ((alpha * logp - value) * share).sum()


def temperature_loss(
    log_alpha: Tensor, entropy: Tensor, target_entropy: float | Tensor, share: Tensor
) -> Tensor:
    """Return ``log α · mean (H − H̄)``; α falls while the entropy exceeds its target.

    The loss of arXiv 1812.05905, eq. 18.

    log_alpha:      scalar with gradient (the common variant in log α)
    entropy:        [P] of the policy, without gradient, or its estimate −log π(u|s) by a fresh action
    target_entropy: a number, or [P]
    share:          [P] as in :func:`policy_loss`
    Returns a scalar.
    """
    check_shapes("temperature_loss", entropy.shape, {"share": share})
    return log_alpha * ((entropy - target_entropy) * share).sum()


def sequence_priority(td_error: Tensor, valid: Tensor) -> Tensor:
    """Return the priority ``η max_t |δ_t| + (1 − η) mean_t |δ_t|``, η = 0.9 (R2D2, section 2.3).

    td_error: [E, B, T] of every critic at the learned positions; averaged as |δ| over the critics first
    valid:    [B, T]    positions that exist
    Returns [B], in units of the TD error.
    """
    check_shapes("sequence_priority", td_error.shape[1:], {"valid": valid})
    error = td_error.abs().mean(0)
    if error.shape[-1] == 1:  # max and mean of one position are itself
        return error[:, 0] * valid[:, 0]
    error = error * valid
    return MAX_SHARE * error.amax(-1) + (1.0 - MAX_SHARE) * masked_mean(error, valid)


def _weighted(squared: Tensor, weight: Tensor, valid: Tensor) -> Tensor:
    """Return ``½ Σ_e mean_B w · mean_t`` of squared errors [E, B, T]; all but the errors is one factor."""
    factor = valid_share(valid, squared.dtype) * (weight * (0.5 / len(weight))).unsqueeze(-1)
    return (squared * factor).sum()
