"""Priority of a sequence from its TD errors."""

from __future__ import annotations

from torch import Tensor

from algorithm.ops.shapes import check_shapes, masked_mean

MAX_SHARE = 0.9
"""Weight of the largest error in a sequence's priority (R2D2, section 2.3, η = 0.9)."""


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
