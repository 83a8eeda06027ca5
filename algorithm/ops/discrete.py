"""Discrete branches: distributions under masks, and the reductions of a critic's outputs over them.

Everything is laid out flat, [..., ΣN]: the first branch's choices, then the second's. Several branches are a
value decomposition by mean (VDN, arXiv 1706.05296): Q(s, a) = mean_b q_b(a_b).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from algorithm.ops.shapes import check_shapes


def branch_log_probs(logits: Tensor, mask: Tensor | None, branches: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return ``log π_b``, the log softmax over the allowed choices of branch b, and π_b.

    The masking is that of arXiv 2006.14171, eq. 4.

    A branch of which nothing is allowed stands in padding; there everything is, so that no NaN arises.

    logits: [..., ΣN]
    mask:   [..., ΣN] bool, true where a choice is allowed; None: each one is
    Returns log π [..., ΣN], 0 where a choice is not allowed, and π [..., ΣN], exactly 0 there.
    """
    if mask is None:
        log_probs = _each(logits, branches, lambda part: part.log_softmax(-1))
        return log_probs, log_probs.exp()
    check_shapes("branch_log_probs", logits.shape, {"mask": mask})
    allowed = or_all(mask, branches)
    hidden = logits.masked_fill(~allowed, -torch.inf)
    log_probs = _each(hidden, branches, lambda part: part.log_softmax(-1))
    return log_probs.masked_fill(~allowed, 0.0), log_probs.exp()


def or_all(mask: Tensor, branches: Sequence[int]) -> Tensor:
    """Return the mask with every choice allowed in branches without an allowed one: ``m_b ∨ ¬any(m_b)``.

    mask: [..., ΣN] bool. Returns the same shape.
    """
    return _each(mask, branches, lambda part: part | ~part.any(-1, keepdim=True))


def mean_entropy(log_probs: Tensor, probs: Tensor, num_branches: int) -> Tensor:
    """Return ``mean_b H(π_b) = −(1/num_branches) Σ π log π``; a choice that is not allowed adds nothing.

    log_probs, probs: [..., ΣN] of :func:`branch_log_probs`. Returns [...].
    """
    return (probs * log_probs).sum(-1) / -num_branches


def largest_entropy(mask: Tensor, branches: Sequence[int]) -> Tensor:
    """Return ``mean_b log n_b``, n_b the number of allowed choices: the entropy of the uniform policy.

    mask: [..., ΣN] bool. Returns [...] in the default dtype.
    """
    parts = torch.split(or_all(mask, branches), list(branches), -1)
    return torch.stack([part.sum(-1).log() for part in parts]).mean(0)


def reduce_branches(q: Tensor, weight: Tensor, num_branches: int) -> Tensor:
    """Return ``mean_b Σ_a w_b(a) q_b(a)``: Q(s, a) for a one-hot weight, the value under π for probabilities.

    q: [..., ΣN]; weight: [..., ΣN], broadcast over further leading dimensions of q. Returns [...].
    """
    check_shapes("reduce_branches", q.shape[-weight.dim() :], {"weight": weight})
    return (q * weight).sum(-1) / num_branches


def branch_values(q: Tensor, probs: Tensor, branches: Sequence[int]) -> Tensor:
    """Return ``v_b = Σ_a π_b(a) q_b(a)`` beside each choice of branch b.

    q, probs: [..., ΣN]. Returns the same shape.
    """
    check_shapes("branch_values", q.shape, {"probs": probs})
    return _each(q * probs, branches, lambda part: part.sum(-1, keepdim=True).expand_as(part))


def greedy_probs(q: Tensor, mask: Tensor, branches: Sequence[int]) -> Tensor:
    """Return ``π_b = onehot(argmax_a q_b(a))`` over the allowed choices.

    The selection of double DQN (arXiv 1509.06461).

    q: [..., ΣN]; mask: [..., ΣN] bool. Returns [..., ΣN] in the dtype of q.
    """
    check_shapes("greedy_probs", q.shape, {"mask": mask})
    hidden = q.masked_fill(~or_all(mask, branches), -torch.inf)
    return _each(hidden, branches, _one_hot_of_largest)


def uniform_probs(mask: Tensor, branches: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return ``1/n_b`` on the n_b allowed choices of each branch, 0 elsewhere.

    mask: [..., ΣN] bool. Returns [..., ΣN].
    """
    allowed = or_all(mask, branches).to(dtype)
    return _each(allowed, branches, lambda part: part / part.sum(-1, keepdim=True))


def sample_branches(probs: Tensor, branches: Sequence[int], uniform: Tensor) -> Tensor:
    """Draw one choice of each branch by the Gumbel-max trick: ``argmax_a log π(a) − log(−log U_a)``.

    A choice of probability 0 has log-probability −∞ and is never taken.

    probs:   [..., ΣN]
    uniform: [..., ΣN] independent numbers in [0, 1)
    Returns one-hots [..., ΣN] in the dtype of ``probs``.
    """
    check_shapes("sample_branches", probs.shape, {"uniform": uniform})
    tiny = torch.finfo(uniform.dtype).tiny
    scores = probs.log() - (-uniform.clamp(min=tiny).log()).log()
    return _each(scores, branches, _one_hot_of_largest)


def discrete_policy_loss(
    log_probs: Tensor, probs: Tensor, q: Tensor, alpha: Tensor, num_branches: int
) -> Tensor:
    """Return ``mean_b Σ_a π_b(a) [α log π_b(a) − q_b(a)]`` at each position (arXiv 1910.07207, eq. 12).

    log_probs, probs: [..., ΣN] with gradient; q: [..., ΣN] without; alpha: scalar without. Returns [...].
    """
    check_shapes("discrete_policy_loss", q.shape, {"log_probs": log_probs, "probs": probs})
    return reduce_branches(alpha * log_probs - q, probs, num_branches)


def _one_hot_of_largest(scores: Tensor) -> Tensor:
    choices = torch.arange(scores.shape[-1], device=scores.device)
    return (scores.argmax(-1, keepdim=True) == choices).to(scores.dtype)


def _each(x: Tensor, branches: Sequence[int], fn: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply ``fn`` to each branch's part of the last dimension."""
    if len(branches) == 1:
        return fn(x)
    return torch.cat([fn(part) for part in torch.split(x, list(branches), -1)], -1)
