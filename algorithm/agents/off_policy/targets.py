"""Passes and targets of the critics: objects chosen once, at construction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.model import Model
from algorithm.nn.layers.norm import BatchStatistics, has_batch_norm
from algorithm.ops.returns import last_of_n, n_step_discount, one_step, soft_n_step, soft_vtrace
from algorithm.ops.shapes import masked_mean

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


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The L = T + n − 1 transitions from the first learned position on, with the values that follow them."""

    reward: Tensor  # [B, L]
    terminated: Tensor  # [B, L] bool
    valid: Tensor  # [B, L] bool
    next_value: Tensor  # [B, L] V(s_{j+1})
    next_bonus: Tensor  # [B, L] h(s_{j+1})
    log_ratio: Callable[[], Tensor]  # [B, L−1] joint log π/μ at columns 1 … L−1; evaluated if needed


class ReturnTarget(Protocol):
    """y [B, T] from the steps, with values to log as the second result."""

    def rows(self, valid: Tensor) -> Tensor | None:
        """Return the transitions [B, T] behind which y bootstraps, of valid [B, L]; None: behind all."""
        ...

    def __call__(self, steps: Steps) -> tuple[Tensor, dict[str, Tensor]]:
        """Return y, computed by a function of :mod:`algorithm.ops.returns`, and values to log."""
        ...

    def spread(self, centred: Tensor, steps: Steps) -> Tensor:
        """Return deviations of the return from y [J, B, T], of deviations [J, B, L] of the bootstrap's value.

        With ``rows`` they are [J, B, T], of those alone.
        """
        ...


@dataclass(frozen=True)
class OneStepTarget:
    """Target for n = 1, without correction."""

    gamma: float

    def rows(self, valid: Tensor) -> None:
        """Return None: every transition is bootstrapped from."""

    def __call__(self, steps: Steps) -> tuple[Tensor, dict[str, Tensor]]:
        """Return :func:`algorithm.ops.returns.one_step`."""
        return one_step(steps.reward, steps.terminated, steps.next_value, gamma=self.gamma), {}

    def spread(self, centred: Tensor, steps: Steps) -> Tensor:
        """Return γ d times it."""
        return self.gamma * centred.masked_fill(steps.terminated, 0.0)


@dataclass(frozen=True)
class NStepTarget:
    """Target for n > 1 without importance sampling (``use_n_step_is: false``)."""

    gamma: float
    n: int

    def rows(self, valid: Tensor) -> Tensor:
        """Return the last of the n transitions from each learned one that exist; itself if none does."""
        return last_of_n(valid, self.n)

    def __call__(self, steps: Steps) -> tuple[Tensor, dict[str, Tensor]]:
        """Return :func:`algorithm.ops.returns.soft_n_step`."""
        y = soft_n_step(
            steps.reward,
            steps.terminated,
            steps.valid,
            steps.next_value,
            steps.next_bonus,
            gamma=self.gamma,
            n=self.n,
        )
        return y, {}

    def spread(self, centred: Tensor, steps: Steps) -> Tensor:
        """Return γ^k Π d times it, [J, B, T] of [J, B, T]."""
        return centred * n_step_discount(steps.terminated, steps.valid, gamma=self.gamma, n=self.n)


@dataclass(frozen=True)
class VTraceTarget:
    """Target for n > 1 with V-trace's clipped importance ratios."""

    gamma: float
    n: int
    trace_decay: float
    rho_max: float
    c_max: float

    def rows(self, valid: Tensor) -> None:
        """Return None: every state has a part in the trace."""

    def spread(self, centred: Tensor, steps: Steps) -> Tensor:
        """Return that of one step, γ d: the mean is exact, the spread an approximation."""
        size = steps.reward.shape[1] - self.n + 1
        ended = steps.terminated[:, :size]
        return self.gamma * centred[..., :size].masked_fill(ended, 0.0)

    def __call__(self, steps: Steps) -> tuple[Tensor, dict[str, Tensor]]:
        """Return :func:`algorithm.ops.returns.soft_vtrace`, the mean ratio and the clipped share."""
        ratio = steps.log_ratio().exp()
        y = soft_vtrace(
            steps.reward,
            steps.terminated,
            steps.valid,
            steps.next_value,
            steps.next_bonus,
            ratio,
            gamma=self.gamma,
            n=self.n,
            trace_decay=self.trace_decay,
            rho_max=self.rho_max,
            c_max=self.c_max,
        )
        # A ratio enters the target of the step before it.
        exists = (steps.valid[:, :-1] & steps.valid[:, 1:]).flatten()
        rho = masked_mean(ratio.clamp(max=self.rho_max).flatten(), exists)
        clipped = masked_mean((ratio > self.rho_max).to(y.dtype).flatten(), exists)
        return y, {"vtrace/rho_mean": rho, "vtrace/clip_frac": clipped}


def make_target(keys: OffPolicyConfig) -> ReturnTarget:
    """Return the target for these settings."""
    if keys.n_step == 1:
        return OneStepTarget(keys.gamma)
    if not keys.use_n_step_is:
        return NStepTarget(keys.gamma, keys.n_step)
    return VTraceTarget(keys.gamma, keys.n_step, keys.v_lambda, keys.v_rho, keys.v_c)
