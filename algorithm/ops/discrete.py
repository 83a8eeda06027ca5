"""Discrete branches: distributions under masks, and the reductions of a critic's outputs over them.

Everything is laid out flat, [..., ΣN]: the first branch's choices, then the second's. Several branches are a
value decomposition by mean (VDN, arXiv 1706.05296): Q(s, a) = mean_b q_b(a_b).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from algorithm.ops import library
from algorithm.ops.shapes import check_shapes

TINY = torch.finfo(torch.float32).tiny
"""Smallest number of which the logarithm is finite."""


def branch_log_probs(logits: Tensor, mask: Tensor | None, branches: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return ``log π_b``, the log softmax over the allowed choices of branch b, and π_b.

    The masking is that of arXiv 2006.14171, eq. 4. Only padding has branches without an allowed choice;
    there every choice counts as allowed, so that no NaN arises.

    logits: [..., ΣN]
    mask:   [..., ΣN] bool, true where a choice is allowed; None: all are
    Returns log π [..., ΣN], 0 where a choice is not allowed, and π [..., ΣN], exactly 0 there.
    """
    lib = library.of(logits)
    if mask is None:
        log_probs = _each(logits, branches, lib.log_softmax)
        return log_probs, lib.exp(log_probs)
    check_shapes("branch_log_probs", logits.shape, {"mask": mask})
    allowed = or_all(mask, branches)
    log_probs = _each(lib.fill(logits, ~allowed, -torch.inf), branches, lib.log_softmax)
    return lib.fill(log_probs, ~allowed, 0.0), lib.exp(log_probs)


def or_all(mask: Tensor, branches: Sequence[int]) -> Tensor:
    """Return the mask with every choice allowed in branches without an allowed one: ``m_b ∨ ¬any(m_b)``.

    mask: [..., ΣN] bool. Returns the same shape.
    """
    return _each(mask, branches, lambda branch: branch | ~branch.any(-1)[..., None])


def mean_entropy(log_probs: Tensor, probs: Tensor, num_branches: int) -> Tensor:
    """Return ``mean_b H(π_b) = −(1/num_branches) Σ π log π``; a choice that is not allowed adds nothing.

    log_probs, probs: [..., ΣN] of :func:`branch_log_probs`. Returns [...].
    """
    return (probs * log_probs).sum(-1) / -num_branches


def largest_entropy(mask: Tensor, branches: Sequence[int]) -> Tensor:
    """Return ``mean_b log n_b``, n_b the number of allowed choices: the entropy of the uniform policy.

    mask: [..., ΣN] bool. Returns [...] in the default dtype.
    """
    allowed = torch.split(or_all(mask, branches), list(branches), -1)
    return torch.stack([branch.sum(-1).log() for branch in allowed]).mean(0)


def reduce_branches(q: Tensor, weight: Tensor, num_branches: int) -> Tensor:
    """Return ``mean_b Σ_a w_b(a) q_b(a)``: Q(s, a) for a one-hot weight, the value under π for probabilities.

    q: [..., ΣN]; weight: [..., ΣN], broadcast over further leading dimensions of q. Returns [...].
    """
    check_shapes("reduce_branches", q.shape[-weight.dim() :], {"weight": weight})
    return (q * weight).sum(-1) / num_branches


def branch_values(q: Tensor, probs: Tensor, branches: Sequence[int]) -> Tensor:
    """Return the value ``v_b = Σ_a π_b(a) q_b(a)`` of each branch, repeated for each of its choices.

    q, probs: [..., ΣN]. Returns the same shape.
    """
    check_shapes("branch_values", q.shape, {"probs": probs})
    return _each(q * probs, branches, lambda branch: branch.sum(-1, keepdim=True).expand_as(branch))


def greedy_probs(q: Tensor, mask: Tensor, branches: Sequence[int]) -> Tensor:
    """Return ``π_b = onehot(argmax_a q_b(a))`` over the allowed choices.

    The selection of double DQN (arXiv 1509.06461).

    q: [..., ΣN]; mask: [..., ΣN] bool. Returns [..., ΣN] in the dtype of q.
    """
    check_shapes("greedy_probs", q.shape, {"mask": mask})
    lib = library.of(q)
    hidden = lib.fill(q, ~or_all(mask, branches), -torch.inf)
    return _each(hidden, branches, lib.one_hot)


def uniform_probs(mask: Tensor, branches: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return the uniform policy: ``1/n_b`` for each of the n_b allowed choices of a branch, else 0.

    mask: [..., ΣN] bool. Returns [..., ΣN].
    """
    allowed = library.of(mask).to(or_all(mask, branches), dtype)
    return _each(allowed, branches, lambda branch: branch / branch.sum(-1)[..., None])


def sample_branches(probs: Tensor, branches: Sequence[int], uniform: Tensor) -> Tensor:
    """Draw one choice of each branch by the Gumbel-max trick: ``argmax_a log π(a) − log(−log U_a)``.

    A choice of probability 0 has log-probability −∞ and is never taken.

    probs:   [..., ΣN]
    uniform: [..., ΣN] independent numbers in [0, 1)
    Returns one-hots [..., ΣN] in the dtype of ``probs``.
    """
    check_shapes("sample_branches", probs.shape, {"uniform": uniform})
    lib = library.of(probs)
    scores = lib.log(probs) - lib.log(-lib.log(lib.at_least(uniform, TINY)))
    return _each(scores, branches, lib.one_hot)


def discrete_policy_loss(
    log_probs: Tensor, probs: Tensor, q: Tensor, alpha: Tensor, num_branches: int
) -> Tensor:
    """Return ``mean_b Σ_a π_b(a) [α log π_b(a) − q_b(a)]`` at each position (arXiv 1910.07207, eq. 12).

    log_probs, probs: [..., ΣN] with gradient; q: [..., ΣN] without; alpha: scalar without. Returns [...].
    """
    check_shapes("discrete_policy_loss", q.shape, {"log_probs": log_probs, "probs": probs})
    return reduce_branches(alpha * log_probs - q, probs, num_branches)


def _each(x: Tensor, branches: Sequence[int], fn: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply ``fn`` to each branch's columns of the last dimension, and concatenate the results."""
    if len(branches) == 1:
        return fn(x)
    lib = library.of(x)
    joined: Tensor = lib.cat([fn(branch) for branch in lib.split(x, branches, -1)], -1)
    return joined
