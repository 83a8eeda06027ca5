"""Passes of the critics: of the stored actions, with gradient, and of what follows them, without."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.model import Model
from algorithm.nn.layers.norm import BatchStatistics, has_batch_norm

StateActions = tuple[Tensor, Tensor]
"""States [P, S] and continuous actions [P, A_c]."""


RowMasks = tuple[Tensor, Tensor]
"""Rows that exist, [P] and [P'] bool."""


class Passes(Protocol):
    """Outputs of the critics for what was done, and of the drawn target critics for what follows."""

    def __call__(
        self, now: StateActions, then: StateActions, exist: RowMasks, members: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the outputs [E, P, N·K] of ``now``, with gradient, and [M, P', N·K] of ``then``, without.

        exist:   rows of both that exist
        members: the drawn target critics; None: all
        """
        ...

    def look(self) -> bool:
        """Return whether a norm may be past its warm-up, as ``BatchStatistics`` does."""
        ...

    def settle(self, usable: Tensor) -> dict[str, Tensor]:
        """Take over what the passes noted, if the step was ``usable`` [] bool; return values to log."""
        ...


class Separate:
    """Two passes, by the critics and by their targets."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __call__(
        self, now: StateActions, then: StateActions, exist: RowMasks, members: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return both."""
        with torch.no_grad():
            following = self._model.target_q.frozen(*then, members=members)
        return self._model.q(*now), following

    def look(self) -> bool:
        """Return false: there are no norms."""
        return False

    def settle(self, usable: Tensor) -> dict[str, Tensor]:
        """Do nothing: nothing is noted."""
        return {}


class Joint:
    """One pass of all rows, normalised by the statistics of them all (CrossQ, arXiv 1902.05605).

    What was done and what follows are two distributions of actions. A batch norm that saw one of them alone
    would fit the other badly. The second half gives a gradient through the statistics alone. With target
    networks it is theirs, on the same rows and by statistics of their own (XQC, arXiv 2509.25174).
    """

    def __init__(self, model: Model, *, own_target: bool, all_rows_exist: bool, unify: bool) -> None:
        self._model, self._all_rows_exist, self._unify = model, all_rows_exist, unify
        self._statistics = BatchStatistics(model.q.members, model.q.copies)
        self._target = BatchStatistics((), model.target_q.copies) if own_target else None

    def __call__(
        self, now: StateActions, then: StateActions, exist: RowMasks, members: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return both."""
        state, action = (torch.cat(pair) for pair in zip(now, then, strict=True))
        share = None if self._all_rows_exist else halves(*exist)
        size = len(now[0])
        with self._statistics.of_batch(share):
            out = self._model.q(state, action)
        if self._target is None:
            following = out[:, size:].detach()
            return out[:, :size], following if members is None else following[members]
        with torch.no_grad(), self._target.of_batch(share):
            following = self._model.target_q.frozen(state.detach(), action, members=members)[:, size:]
        return out[:, :size], following

    def look(self) -> bool:
        """Return whether a norm may be past its warm-up."""
        corrects = self._statistics.look()
        if self._target is not None:  # its warm-up is a copy of theirs
            self._target.corrects = corrects
        return corrects

    def settle(self, usable: Tensor) -> dict[str, Tensor]:
        """Move the running statistics."""
        return {"norm/shift": self._statistics.settle(usable, unify=self._unify)}


def make_passes(model: Model, keys: OffPolicyConfig) -> Passes:
    """Return one pass for critics with a batch norm, else two."""
    if not has_batch_norm(model.q.members[0]):
        return Separate(model)
    alike = keys.seq_encoder is None and (keys.n_step == 1 or not keys.use_n_step_is)
    return Joint(model, own_target=keys.use_target_network, all_rows_exist=alike, unify=keys.unit_weights)


def halves(now_valid: Tensor, then_valid: Tensor) -> Tensor:
    """Return the share of each row in the statistics [P + P']: half for each part, none for missing rows."""
    parts = [valid.float() / valid.sum().clamp(min=1.0) for valid in (now_valid, then_valid)]
    return torch.cat(parts) / 2.0
