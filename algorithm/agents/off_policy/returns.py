"""Multi-step returns, which critics learn, and the critics of each reward horizon. Chosen once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.extensions.base import Context, Extension, Horizon
from algorithm.nn.ensemble import Ensemble, NormPass
from algorithm.nn.value_range import ValueRange
from algorithm.ops.returns import last_used, n_step_discount, soft_n_step, soft_vtrace, used_steps
from algorithm.ops.shapes import masked_mean


@dataclass(frozen=True)
class Return(ABC):
    """Target y [B, T] of the L = T + n − 1 transitions from the first learned position on.

    needs_ratios:  it needs the ratios π/μ of the stored actions, for an off-policy correction
    samples:       it draws at random where a target ends
    needs_padding: it needs values after transitions that do not exist, too
    """

    gamma: float
    needs_ratios: ClassVar = False
    samples: ClassVar = False
    needs_padding: ClassVar = False

    @abstractmethod
    def __call__(
        self,
        reward: Tensor,
        terminated: Tensor,
        valid: Tensor,
        next_value: Tensor,
        next_bonus: Tensor,
        steps: Tensor,
    ) -> Tensor:
        """Return y [B, T].

        reward, terminated, valid: [B, L]
        next_value: [B, L] V(s') with the entropy bonus of s'; next_bonus: [B, L] that bonus, h(s')
        steps:      result of :meth:`steps`
        """

    @abstractmethod
    def discount(self, terminated: Tensor, steps: Tensor) -> Tensor:
        """Return the factor of the bootstrapped value in y, [B, T]."""

    def steps(self, valid: Tensor, log_ratio: Tensor | None, coins: Tensor | None) -> Tensor:
        """Return the mask of the n steps from each learned position on that its target uses, [B, T, n] bool.

        log_ratio: [B, L−1] joint log π/μ at columns 1 … L−1; None unless the return ``needs_ratios``
        coins:     [B, L−1] uniform random numbers there; None unless it ``samples``
        """
        return valid.unsqueeze(-1)

    def rows(self, steps: Tensor) -> Tensor | slice:
        """Return the indices [B·T] of the transitions, of B·L, after which y bootstraps; or all, a slice."""
        return slice(None)


@dataclass(frozen=True)
class OneStep(Return):
    """``r + γ d V(s')`` (arXiv 1812.05905, eq. 2)."""

    @override
    def __call__(
        self,
        reward: Tensor,
        terminated: Tensor,
        valid: Tensor,
        next_value: Tensor,
        next_bonus: Tensor,
        steps: Tensor,
    ) -> Tensor:
        """Return y [B, T]."""
        return reward + self.gamma * next_value.masked_fill(terminated, 0.0)

    @override
    def discount(self, terminated: Tensor, steps: Tensor) -> Tensor:
        """Return γ d [B, T]."""
        return self.gamma * (~terminated).float()


@dataclass(frozen=True)
class NStep(Return):
    """Sum of n rewards and the value after the last one, without correction (``use_n_step_is: false``)."""

    n: int

    @override
    def steps(self, valid: Tensor, log_ratio: Tensor | None, coins: Tensor | None) -> Tensor:
        """Return the mask of the n steps that exist, [B, T, n] bool."""
        return used_steps(valid, None, self.n)

    @override
    def rows(self, steps: Tensor) -> Tensor:
        """Return the index of each target's last transition, [B·T]; if none exists, of the learned one."""
        length = steps.shape[1] + self.n - 1
        first = torch.arange(len(steps), device=steps.device).unsqueeze(-1) * length
        return (last_used(steps) + first).flatten()

    @override
    def __call__(
        self,
        reward: Tensor,
        terminated: Tensor,
        valid: Tensor,
        next_value: Tensor,
        next_bonus: Tensor,
        steps: Tensor,
    ) -> Tensor:
        """Return y [B, T] of :func:`algorithm.ops.returns.soft_n_step`."""
        return soft_n_step(reward, terminated, steps, next_value, next_bonus, gamma=self.gamma)

    @override
    def discount(self, terminated: Tensor, steps: Tensor) -> Tensor:
        """Return γ^k Π d [B, T]."""
        return n_step_discount(terminated, steps, gamma=self.gamma)


@dataclass(frozen=True)
class SampledVTrace(NStep):
    """Estimate of V-trace of n steps, from a single bootstrapped state (``use_n_step_is: sampled``).

    A target goes on after s_t with the probability ``c_t = λ min(1, π/μ)``, else it bootstraps from V(s_t).
    Its mean over the coins is V-trace with ρ_t = c_t:
    ``(1 − c) V(s) + c (r + h + γ V(s')) = V(s) + c (r + h + γ V(s') − V(s))``.
    """

    trace_decay: float
    needs_ratios: ClassVar = True
    samples: ClassVar = True

    @override
    def steps(self, valid: Tensor, log_ratio: Tensor | None, coins: Tensor | None) -> Tensor:
        """Return the mask of the steps before the first coin above c, [B, T, n] bool."""
        assert log_ratio is not None and coins is not None
        return used_steps(valid, coins < self.trace_decay * log_ratio.exp(), self.n)


@dataclass(frozen=True)
class VTrace(Return):
    """n steps with clipped importance ratios (arXiv 1802.01561)."""

    n: int
    trace_decay: float
    rho_max: float
    c_max: float
    needs_ratios: ClassVar = True
    needs_padding: ClassVar = True

    @override
    def steps(self, valid: Tensor, log_ratio: Tensor | None, coins: Tensor | None) -> Tensor:
        """Return the ratios π/μ [B, L−1] in place of a mask."""
        assert log_ratio is not None, "this return needs ratios"
        return log_ratio.exp()

    @override
    def __call__(
        self,
        reward: Tensor,
        terminated: Tensor,
        valid: Tensor,
        next_value: Tensor,
        next_bonus: Tensor,
        steps: Tensor,
    ) -> Tensor:
        """Return y [B, T] of :func:`algorithm.ops.returns.soft_vtrace`; steps: the ratios."""
        return soft_vtrace(
            reward,
            terminated,
            valid,
            next_value,
            next_bonus,
            steps,
            gamma=self.gamma,
            n=self.n,
            trace_decay=self.trace_decay,
            rho_max=self.rho_max,
            c_max=self.c_max,
        )

    @override
    def discount(self, terminated: Tensor, steps: Tensor) -> Tensor:
        """Return γ d [B, T], as of one step: the target's mean is exact, its spread an approximation."""
        return self.gamma * (~terminated[:, : terminated.shape[1] - self.n + 1]).float()


def make_return(keys: OffPolicyConfig, gamma: float) -> Return:
    """Return the return that ``n_step`` and ``use_n_step_is`` choose, with the discount ``gamma``."""
    if keys.n_step == 1:
        return OneStep(gamma)
    if keys.use_n_step_is == "sampled":
        return SampledVTrace(gamma, keys.n_step, keys.v_lambda)
    if not keys.use_n_step_is:
        return NStep(gamma, keys.n_step)
    return VTrace(gamma, keys.n_step, keys.v_lambda, keys.v_rho, keys.v_c)


def ratio_metrics(log_ratio: Tensor, valid: Tensor, rho_max: float) -> dict[str, Tensor]:
    """Return the mean clipped ratio and the share of clipped ratios, to be logged.

    log_ratio: [B, L−1] log π/μ at columns 1 … L−1; valid: [B, L]
    """
    ratio, exists = log_ratio.exp(), (valid[:, :-1] & valid[:, 1:]).flatten()
    rho = masked_mean(ratio.clamp(max=rho_max).flatten(), exists)
    clipped = masked_mean((ratio > rho_max).to(ratio.dtype).flatten(), exists)
    return {"vtrace/rho_mean": rho, "vtrace/clip_frac": clipped}


def spread_out(value: Tensor, rows: Tensor | slice, shape: torch.Size) -> Tensor:
    """Return a tensor of ``shape`` [B, L] with the values [P'] at their ``rows``, 0 elsewhere.

    Values of the same row are equal, so it does not matter which one is kept.
    """
    if isinstance(rows, slice):
        return value.view(shape)
    full = value.new_zeros(shape)
    full.view(-1)[rows] = value
    return full


@dataclass(frozen=True)
class HorizonCritics:
    """Critics of all rewards with the same horizon, and the returns that they learn.

    norm_pass:  joint pass of current and next actions, for critics with a batch norm; None: two passes
    returns:    computes their targets
    extensions: reward signals with this horizon
    main:       their values include the environment's reward and the bonus h(s)
    bounds:     bounds of bootstrapped values, without target networks; else None
    """

    q: Ensemble
    target_q: Ensemble
    norm_pass: NormPass | None
    returns: Return
    horizon: Horizon
    extensions: Sequence[Extension]
    main: bool
    bounds: ValueRange | None

    def reward(self, ctx: Context) -> Tensor:
        """Return the sum [B, W] of the rewards that these critics value."""
        if not self.extensions:
            return ctx.batch.reward
        environment = ctx.batch.reward if self.main else torch.zeros_like(ctx.batch.reward)
        return environment + sum(extension.reward_bonus(ctx) for extension in self.extensions)
