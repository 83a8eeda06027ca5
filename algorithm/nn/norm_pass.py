"""Joint pass of critics over current and next actions, with common batch-norm statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers.norm import BatchStatistics

StateActions = tuple[Tensor, Tensor]
"""States [P, S] and continuous actions [P, A_c]."""


class NormPass:
    """Joint pass of critics over current and next actions, normalised together (CrossQ, arXiv 1902.05605).

    Stored and next actions are two distributions, and a batch norm with the statistics of one would fit the
    other badly. The next actions contribute a gradient through the statistics alone. With target networks
    their outputs are those of the targets, on the same rows and by the targets' own statistics (XQC, arXiv
    2509.25174).
    """

    def __init__(self, q: Ensemble, target_q: Ensemble, *, own_target: bool, all_rows_exist: bool) -> None:
        self._q, self._target_q, self._all_rows_exist = q, target_q, all_rows_exist
        self._statistics = BatchStatistics(q.members, q.copies)
        self._target = BatchStatistics((), target_q.copies) if own_target else None

    def __call__(
        self, now: StateActions, then: StateActions, exist: tuple[Tensor, Tensor], members: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs [E, P, N·D] of ``now``, with gradient, and [M, P', N·D] of ``then``, without.

        exist:   rows of both that exist, [P] and [P'] bool
        members: the drawn target critics; None: all
        """
        state, action = (torch.cat(pair) for pair in zip(now, then, strict=True))
        share = None if self._all_rows_exist else halves(*exist)
        size = len(now[0])
        with self._statistics.of_batch(share):
            out = self._q(state, action)
        if self._target is None:
            following = out[:, size:].detach()
            return out[:, :size], following if members is None else following[members]
        with torch.no_grad(), self._target.of_batch(share):
            following = self._target_q.frozen(state.detach(), action, members=members)[:, size:]
        return out[:, :size], following

    def past_warm_up(self) -> bool:
        """Set, before an update, whether batch norms may be past their warm-up; return it."""
        ready = self._statistics.past_warm_up()
        if self._target is not None:  # the targets' warm-up is a copy of the critics'
            self._target.norm_ready = ready
        return ready

    def commit(self, usable: Tensor) -> None:
        """Move the running statistics; see :meth:`.BatchStatistics.commit`."""
        self._statistics.commit(usable)


def halves(now_valid: Tensor, then_valid: Tensor) -> Tensor:
    """Return the share of each row in the statistics [P + P']: half for each kind, 0 for missing rows."""
    shares = [valid.float() / valid.sum().clamp(min=1.0) for valid in (now_valid, then_valid)]
    return torch.cat(shares) / 2.0
