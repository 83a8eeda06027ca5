"""Critic losses and targets: objects chosen once, at construction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from algorithm.agents.sac.config import SacConfig
from algorithm.ops.returns import last_of_n, n_step_discount, one_step, soft_n_step, soft_vtrace
from algorithm.ops.sac import clip_binds, clipped_critic_loss, critic_loss
from algorithm.ops.shapes import masked_mean

Reduce = Callable[[Tensor], Tensor]
"""Values of several critics [M, ...] -> one value [...]."""


def smallest(q: Tensor) -> Tensor:
    """Return the minimum over critics [M, ...] (arXiv 1802.09477, section 4.2): [...]."""
    return q.min(0).values


def average(q: Tensor) -> Tensor:
    """Return the mean over critics [M, ...] (arXiv 2209.10081, section 5.2): [...]."""
    return q.mean(0)


def choose_reduce(config: SacConfig) -> tuple[Reduce, Reduce]:
    """Return what targets take of the drawn critics, and what the policy climbs of all of them.

    REDQ (arXiv 2101.05982, algorithm 1): the policy climbs the mean where targets use a subset. So it does
    with quantiles, of which targets drop the largest instead (TQC, arXiv 2005.04269).
    """
    if config.value_head == "quantile":
        return average, average
    target = average if config.ensemble_q_reduce == "mean" else smallest
    return target, target if config.ensemble_q_sample == config.ensemble_q_num else average


class CriticLoss(Protocol):
    """Scalar loss of q [E, B, T] against y [B, T], with values to log as the second result.

    Only some losses call ``q_target``.
    """

    def __call__(
        self, q: Tensor, y: Tensor, q_target: Callable[[], Tensor], weight: Tensor, valid: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return loss and values; weight [B], valid [B, T]; ``q_target()``: the target critics' [E, B, T]."""
        ...


class PlainCriticLoss:
    """Squared error (``clip_epsilon`` ≤ 0)."""

    def __call__(
        self, q: Tensor, y: Tensor, q_target: Callable[[], Tensor], weight: Tensor, valid: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted mean of squared errors (:func:`algorithm.ops.sac.critic_loss`)."""
        return critic_loss(q, y, weight, valid), {}


@dataclass(frozen=True)
class ClippedCriticLoss:
    """Squared error with the prediction clipped to ±epsilon around the target network's."""

    epsilon: float

    def __call__(
        self, q: Tensor, y: Tensor, q_target: Callable[[], Tensor], weight: Tensor, valid: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return :func:`algorithm.ops.sac.clipped_critic_loss` and the clipped share."""
        target = q_target()
        binds = clip_binds(q, y, target, epsilon=self.epsilon)
        share = masked_mean(binds.float().mean(0).flatten(), valid.flatten())
        loss = clipped_critic_loss(q, y, target, weight, valid, epsilon=self.epsilon)
        return loss, {"value/clipped": share}


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


def make_target(
    *, gamma: float, n: int, use_is: bool, trace_decay: float, rho_max: float, c_max: float
) -> ReturnTarget:
    """Return the target for these settings."""
    if n == 1:
        return OneStepTarget(gamma)
    if not use_is:
        return NStepTarget(gamma, n)
    return VTraceTarget(gamma, n, trace_decay, rho_max, c_max)


def make_critic_loss(clip_epsilon: float) -> CriticLoss:
    """Return the clipped loss for a positive epsilon, else the plain one."""
    return ClippedCriticLoss(clip_epsilon) if clip_epsilon > 0 else PlainCriticLoss()
