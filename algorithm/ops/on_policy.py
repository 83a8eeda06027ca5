"""Losses of learning from rollouts; returns, gradients and trust region of ACER (arXiv 1611.01224).

φ are the parameters of the policy's distribution at a state. Gradients by φ are written out. One backward
pass through the networks then carries them on.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from algorithm.ops.shapes import check_shapes

SMALLEST = 1e-6
"""Lower bound of a probability by which something is divided."""

LARGEST_LOG_RATIO = 20.0
"""Upper bound of log ratios before ``exp``: that of an action with many parts may overflow a float."""


def surrogate(log_ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """Return PPO's loss per transition, ``−min(ρA, clip(ρ, 1 ± ε)A)`` (arXiv 1707.06347, eq. 7).

    log_ratio: [M] log π − log π_old of the whole action; advantage [M]; clip: ε, infinite for ``−ρA``
    """
    check_shapes("surrogate", log_ratio.shape, {"advantage": advantage})
    ratio = log_ratio.clamp(max=LARGEST_LOG_RATIO).exp()
    plain = ratio * advantage
    if math.isinf(clip):
        return -plain
    return -torch.minimum(plain, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)


def value_error(value: Tensor, old: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """Return ``(V − R)²`` per transition (arXiv 1707.06347, eq. 9).

    value, old, target: [M]
    clip: c; the result is then the larger of this error and that of V clipped to ±c around the old V
    Returns [M].
    """
    check_shapes("value_error", value.shape, {"old": old, "target": target})
    error = (value - target).square()
    if clip is None:
        return error
    clipped = old + (value - old).clamp(-clip, clip)
    return torch.maximum(error, (clipped - target).square())


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """Return ``k3 = (ρ − 1) − log ρ`` per transition, whose mean estimates KL(π_old ‖ π) (Schulman 2020).

    log_ratio: any shape, log π − log π_old. Returns the same shape.
    """
    return log_ratio.clamp(max=LARGEST_LOG_RATIO).expm1() - log_ratio


def retrace(
    reward: Tensor,
    terminated: Tensor,
    valid: Tensor,
    value: Tensor,
    q: Tensor,
    trace: Tensor,
    *,
    gamma: float,
) -> Tensor:
    """Return the returns of Retrace (arXiv 1606.02647; arXiv 1611.01224, eq. 5).

    ``R_t = r_t + γ d_t [c_{t+1} (R_{t+1} − Q(s_{t+1}, a_{t+1})) + V(s_{t+1})]``; without a following
    transition in the window c is 0, so that V alone estimates the rest of the return.

    reward, terminated, valid: [B, T]
    value: [B, T+1] V(s), of the state after the window too
    q, trace: [B, T] Q(s, a) and c of the actions taken
    Returns R [B, T].
    """
    same_shape = {"terminated": terminated, "valid": valid, "q": q, "trace": trace}
    check_shapes("retrace", reward.shape, same_shape)
    discount = gamma * (~terminated).to(reward.dtype)
    following = (reward + discount * value[:, 1:]).unbind(1)
    decays, traces, qs = discount.unbind(1), (trace * valid).unbind(1), q.unbind(1)
    result = [following[-1]]
    for t in range(len(following) - 2, -1, -1):
        missing = traces[t + 1] * (result[-1] - qs[t + 1])
        result.append(torch.addcmul(following[t], decays[t], missing))
    return torch.stack(result[::-1], 1)


def choice_gradient(
    probs: Tensor, ratio: Tensor, taken: Tensor, gain: Tensor, advantages: Tensor, *, ratio_max: float
) -> Tensor:
    """Return the gradient by φ = π of a categorical policy's objective (arXiv 1611.01224, eq. 7).

    ``g(a) = 1[a taken] min(c, ρ) A / π(a) + (1 − c/ρ(a))₊ A(a)``, from
    ``min(c, ρ) log φ(a) A + Σ_a (1 − c/ρ(a))₊ π(a) log φ(a) A(a)`` with all but φ constant.

    probs, ratio: [..., ΣN] π(a) and ρ(a) = π(a)/μ(a)
    taken: [..., ΣN] one-hot; gain: [...] min(c, ρ) A of the return; advantages: [..., ΣN] of the critic
    ratio_max: c
    Returns [..., ΣN].
    """
    check_shapes("choice_gradient", probs.shape, {"ratio": ratio, "taken": taken, "advantages": advantages})
    plain = taken * gain.unsqueeze(-1) / probs.clamp(min=SMALLEST)
    return plain + (1.0 - ratio_max / ratio).clamp(min=0.0) * advantages


def normal_gradient(mean: Tensor, log_std: Tensor, z: Tensor) -> Tensor:
    """Return ``∂ log N(z)/∂φ`` for φ = (mean, log σ): ``((z − m)/σ², (z − m)²/σ² − 1)``.

    mean, log_std, z: [..., A_c]. Returns [..., 2 A_c].
    """
    standard = (z - mean) * (-log_std).exp()
    return torch.cat([standard * (-log_std).exp(), standard.square() - 1.0], -1)


def choice_divergence(average: Tensor, probs: Tensor) -> Tensor:
    """Return ``∂KL(f̄ ‖ π)/∂π = −f̄/π``; 0 where both probabilities are 0.

    average, probs: [..., ΣN] f̄ and π. Returns [..., ΣN].
    """
    return -average / probs.clamp(min=SMALLEST)


def normal_divergence(average: tuple[Tensor, Tensor], mean: Tensor, log_std: Tensor) -> Tensor:
    """Return ``∂KL(f̄ ‖ N)/∂φ`` for φ = (mean, log σ): ``((m − m̄)/σ², 1 − (σ̄² + (m − m̄)²)/σ²)``.

    average: m̄ and log σ̄; all: [..., A_c]. Returns [..., 2 A_c].
    """
    moved, precision = mean - average[0], (-2.0 * log_std).exp()
    spread = (2.0 * average[1]).exp() + moved.square()
    return torch.cat([moved * precision, 1.0 - spread * precision], -1)


def trust_region(gradient: Tensor, divergence: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """Return the step nearest to ``gradient`` along which the KL divergence grows by ``limit`` at most.

    ``z = g − max(0, (k·g − δ)/‖k‖²) k`` (arXiv 1611.01224, eq. 12), which solves ``min ½‖g − z‖²`` under
    ``k·z ≤ δ``.

    gradient, divergence: g and k [..., D]; limit: δ
    Returns z [..., D], and the mask [...] of the steps that were shortened.
    """
    check_shapes("trust_region", gradient.shape, {"divergence": divergence})
    beyond = (gradient * divergence).sum(-1) - limit
    factor = beyond.clamp(min=0.0) / divergence.square().sum(-1).clamp(min=torch.finfo(gradient.dtype).tiny)
    return gradient - factor.unsqueeze(-1) * divergence, beyond > 0.0
