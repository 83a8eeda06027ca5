"""Soft multi-step targets for Q.

All arguments are aligned with the L = T + n − 1 transitions that begin at the first learned position:
column j is the transition s_j → s_{j+1}; ``next_value[:, j]`` is V(s_{j+1}) and ``next_bonus[:, j]`` the
entropy bonus h(s_{j+1}) of the state it leads to. Each of the T learned positions gets its own target.
"""

from __future__ import annotations

import torch
from torch import Tensor

from algorithm.ops.shapes import check_shapes


def soft_n_step(
    reward: Tensor,
    terminated: Tensor,
    used: Tensor,
    next_value: Tensor,
    next_bonus: Tensor,
    *,
    gamma: float,
) -> Tensor:
    """Return the soft target of several steps (arXiv 1812.05905, eq. 2, unrolled k times).

    ``y = r_0 + Σ_{1≤t<k} γ^t (r_t + h(s_t)) + γ^k d V(s_k)``; k ≤ n is the number of steps that are used, d
    is 0 if one of them terminated.

    reward, terminated, next_value, next_bonus: [B, L], L = T + n − 1
    used: [B, T, n] bool, the n steps from each learned position on: first True, then False
    Returns y [B, T]; 0 where no step is used.
    """
    check_shapes(
        "soft_n_step",
        reward.shape,
        {"terminated": terminated, "next_value": next_value, "next_bonus": next_bonus},
    )
    n, uses = used.shape[-1], used.to(reward.dtype)
    discount = gamma * (~terminated).to(reward.dtype)
    steps = discount.unfold(1, n, 1)
    before = torch.cat([torch.ones_like(steps[..., :1]), torch.cumprod(steps[..., :-1], -1)], -1)
    bonus = torch.cat([torch.zeros_like(next_bonus[:, :1]), next_bonus[:, :-1]], 1).unfold(1, n, 1).clone()
    bonus[..., 0] = 0.0  # the action at position 0 is given: its entropy is not part of Q(s_0, a_0)
    gained = reward.unfold(1, n, 1) + bonus
    is_last = uses - torch.cat([uses[..., 1:], torch.zeros_like(uses[..., :1])], -1)
    bootstrap = (discount * next_value).unfold(1, n, 1)
    return (before * (uses * gained + is_last * bootstrap)).sum(-1)


def used_steps(valid: Tensor, follows: Tensor | None, n: int) -> Tensor:
    """Return the mask of the steps a target uses, of the n from each learned position on: [B, T, n] bool.

    valid:   [B, L] transitions that exist, L = T + n − 1: one block of True in each row
    follows: [B, L − 1] whether a target that reaches column 1 … L − 1 uses it too; None: always
    """
    used = valid.unfold(1, n, 1)
    if follows is None:
        return used
    goes_on = torch.cat([torch.ones_like(used[..., :1]), follows.unfold(1, n - 1, 1)], -1)
    return used & goes_on.cumprod(-1).bool()


def last_used(used: Tensor) -> Tensor:
    """Return the column of the last step of each target, behind which V is taken (arXiv 1812.05905, eq. 2).

    It is ``t + k − 1`` for the learned position t with k used steps, and t itself without one.

    used: [B, T, n] bool, from :func:`used_steps`
    Returns [B, T] int64.
    """
    first = torch.arange(used.shape[1], device=used.device)
    return first + used.sum(-1).clamp_(min=1) - 1


def n_step_discount(terminated: Tensor, used: Tensor, *, gamma: float) -> Tensor:
    """Return the factor of V(s_k) in :func:`soft_n_step`: ``y = … + γ^k d V(s_k)``.

    terminated: [B, L]; used: [B, T, n] bool. Returns [B, T]; 0 where no step is used.
    """
    steps = (gamma * (~terminated).float()).unfold(1, used.shape[-1], 1)
    product = torch.where(used, steps, 1.0).prod(-1)
    return product.masked_fill(~used.any(-1), 0.0)


def soft_vtrace(
    reward: Tensor,
    terminated: Tensor,
    valid: Tensor,
    next_value: Tensor,
    next_bonus: Tensor,
    ratio: Tensor,
    *,
    gamma: float,
    n: int,
    trace_decay: float,
    rho_max: float,
    c_max: float,
) -> Tensor:
    """Return soft V-trace as a Q target (IMPALA, arXiv 1802.01561, eq. 1, with the entropy bonus in δ).

    ``y = r_0 + γ d_0 [V(s_1) + Σ_{t=1}^{n−1} γ^{t−1} (Π_{i=1}^{t−1} d_i c_i) δ_t]`` with
    ``δ_t = ρ_t [r_t + h(s_t) + γ d_t V(s_{t+1}) − V(s_t)]``, ``ρ_t = min(rho_max, ratio_t)`` and
    ``c_t = trace_decay · min(c_max, ratio_t)``. The action at t = 0 is given: no ratio and no bonus there.
    A step that does not exist has ρδ = 0 and c = 0. The bonus in δ keeps the fixed point at the soft Q for
    n > 1.

    reward, terminated, valid, next_value, next_bonus: [B, L], L = T + n − 1, n ≥ 2
    ratio: [B, L − 1]  π(a|s)/μ(a|s) of the joint action at columns 1 … L−1
    Returns y [B, T].
    """
    check_shapes(
        "soft_vtrace",
        reward.shape,
        {"terminated": terminated, "valid": valid, "next_value": next_value, "next_bonus": next_bonus},
    )
    check_shapes("soft_vtrace", (reward.shape[0], reward.shape[1] - 1), {"ratio": ratio})
    if n < 2:
        raise ValueError("soft_vtrace: n must be at least 2; n = 1 has no ratio and is one_step")
    length = reward.shape[1] - n + 1  # T
    exists = valid[:, 1:].to(reward.dtype)
    discount = gamma * (~terminated).to(reward.dtype)
    value, bonus = next_value[:, :-1], next_bonus[:, :-1]  # of s_1 … s_{L−1}
    advantage = reward[:, 1:] + bonus + discount[:, 1:] * next_value[:, 1:] - value
    delta = (exists * ratio.clamp(max=rho_max) * advantage).unfold(1, n - 1, 1)  # [B, T, n−1]
    decay = (exists * discount[:, 1:] * trace_decay * ratio.clamp(max=c_max)).unfold(1, n - 1, 1)
    traces = torch.cat([torch.ones_like(decay[..., :1]), torch.cumprod(decay[..., :-1], -1)], -1)
    corrected = next_value[:, :length] + (traces * delta).sum(-1)
    return reward[:, :length] + discount[:, :length] * corrected
