"""Returns that critics learn towards, and critics by the horizon of their rewards: chosen once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.model import Model
from algorithm.extensions.base import Context, Extension, Horizon, by_horizon
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.layers.norm import has_batch_norm
from algorithm.nn.norm_pass import NormPass
from algorithm.nn.return_scale import NoReturnScale, ReturnScale
from algorithm.nn.value_range import ValueRange
from algorithm.ops.returns import last_used, n_step_discount, soft_n_step, soft_vtrace, used_steps
from algorithm.ops.shapes import masked_mean


@dataclass(frozen=True)
class Return(ABC):
    """Target y [B, T] of the L = T + n − 1 transitions from the first learned position on.

    corrects:      it needs the ratios π/μ of the stored actions
    samples:       it draws where a target ends
    needs_padding: values behind transitions that do not exist are computed, too
    """

    gamma: float
    corrects: ClassVar = False
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
        """Return y.

        reward, terminated, valid: [B, L]
        next_value: [B, L] V(s') with the entropy bonus of s'; next_bonus: [B, L] that bonus, h(s')
        steps:      what :meth:`steps` returned
        """

    @abstractmethod
    def discount(self, terminated: Tensor, steps: Tensor) -> Tensor:
        """Return the factor of the bootstrapped value in y, [B, T]."""

    def steps(self, valid: Tensor, log_ratio: Tensor | None, coins: Tensor | None) -> Tensor:
        """Return how far targets reach: which of the n steps behind a learned position count, [B, T, n] bool.

        log_ratio: [B, L−1] joint log π/μ at columns 1 … L−1; None unless the return ``corrects``
        coins:     [B, L−1] uniform random numbers there; None unless it ``samples``
        """
        return valid.unsqueeze(-1)

    def rows(self, steps: Tensor) -> Tensor | None:
        """Return the transitions behind which y bootstraps, [B·T] of the B·L; None stands for all."""
        return None


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
        """Return γ d."""
        return self.gamma * (~terminated).float()


@dataclass(frozen=True)
class NStep(Return):
    """Sum of n rewards, and the value behind the last of them, uncorrected (``use_n_step_is: false``)."""

    n: int

    @override
    def steps(self, valid: Tensor, log_ratio: Tensor | None, coins: Tensor | None) -> Tensor:
        """Return those of the n steps that exist, [B, T, n] bool."""
        return used_steps(valid, None, self.n)

    @override
    def rows(self, steps: Tensor) -> Tensor:
        """Return the last transition that is used; the learned one itself where none exists."""
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
        """Return :func:`algorithm.ops.returns.soft_n_step`."""
        return soft_n_step(reward, terminated, steps, next_value, next_bonus, gamma=self.gamma)

    @override
    def discount(self, terminated: Tensor, steps: Tensor) -> Tensor:
        """Return γ^k Π d."""
        return n_step_discount(terminated, steps, gamma=self.gamma)


@dataclass(frozen=True)
class SampledVTrace(NStep):
    """V-trace of n steps by a single bootstrapped state (``use_n_step_is: sampled``).

    A target goes on behind s_t with the probability ``c_t = λ min(1, π/μ)``, else it bootstraps from V(s_t).
    Its mean over the coins is V-trace with ρ_t = c_t:
    ``(1 − c) V(s) + c (r + h + γ V(s')) = V(s) + c (r + h + γ V(s') − V(s))``.
    """

    trace_decay: float
    corrects: ClassVar = True
    samples: ClassVar = True

    @override
    def steps(self, valid: Tensor, log_ratio: Tensor | None, coins: Tensor | None) -> Tensor:
        """Return the steps until a coin is larger than c, [B, T, n] bool."""
        assert log_ratio is not None and coins is not None
        return used_steps(valid, coins < self.trace_decay * log_ratio.exp(), self.n)


@dataclass(frozen=True)
class VTrace(Return):
    """n steps with clipped importance ratios (arXiv 1802.01561)."""

    n: int
    trace_decay: float
    rho_max: float
    c_max: float
    corrects: ClassVar = True
    needs_padding: ClassVar = True

    @override
    def steps(self, valid: Tensor, log_ratio: Tensor | None, coins: Tensor | None) -> Tensor:
        """Return the ratios instead, [B, L−1]."""
        assert log_ratio is not None, "this return corrects"
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
        """Return :func:`algorithm.ops.returns.soft_vtrace`."""
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
        """Return that of one step, γ d: the mean is exact, the spread an approximation."""
        return self.gamma * (~terminated[:, : terminated.shape[1] - self.n + 1]).float()


def make_return(keys: OffPolicyConfig, gamma: float) -> Return:
    """Return the return of these settings."""
    if keys.n_step == 1:
        return OneStep(gamma)
    if keys.use_n_step_is == "sampled":
        return SampledVTrace(gamma, keys.n_step, keys.v_lambda)
    if not keys.use_n_step_is:
        return NStep(gamma, keys.n_step)
    return VTrace(gamma, keys.n_step, keys.v_lambda, keys.v_rho, keys.v_c)


def ratio_metrics(log_ratio: Tensor, valid: Tensor, rho_max: float) -> dict[str, Tensor]:
    """Return the mean clipped ratio and the share that is clipped. A ratio counts for the step before."""
    ratio, exists = log_ratio.exp(), (valid[:, :-1] & valid[:, 1:]).flatten()
    rho = masked_mean(ratio.clamp(max=rho_max).flatten(), exists)
    clipped = masked_mean((ratio > rho_max).to(ratio.dtype).flatten(), exists)
    return {"vtrace/rho_mean": rho, "vtrace/clip_frac": clipped}


def spread_out(value: Tensor, rows: Tensor, shape: torch.Size) -> Tensor:
    """Return values [B·T] at their ``rows`` of a [B, L], 0 elsewhere; of a row met twice either is right."""
    full = value.new_zeros(shape)
    full.view(-1)[rows] = value
    return full


@dataclass(frozen=True)
class HorizonCritics:
    """Critics of the rewards that have one horizon, and what they learn towards.

    norm_pass:  pass of what was done and what follows, for critics with a batch norm; None: two passes
    returns:    of the rewards
    extensions: whose rewards they are of
    main:       the environment's reward and the bonus h(s) are part of their values
    bounds:     of their values, where nothing else corrects them; else None
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
        """Return the sum of its rewards [B, W]."""
        if not self.extensions:
            return ctx.batch.reward
        environment = ctx.batch.reward if self.main else torch.zeros_like(ctx.batch.reward)
        return environment + sum(extension.reward_bonus(ctx) for extension in self.extensions)


def make_horizons(
    model: Model, keys: OffPolicyConfig, extensions: Sequence[Extension], scale: ReturnScale | NoReturnScale
) -> tuple[HorizonCritics, ...]:
    """Return the critics of each horizon, those of the environment's reward first.

    The bounds of their values become the model's, which saves them all, so that a checkpoint's names do not
    depend on the keys. They bind where nothing else corrects values, and γ is below 1.
    """
    environment = Horizon(keys.gamma)
    groups = by_horizon(extensions, environment).items()
    made = []
    for q, target_q, (horizon, rewarding) in zip(model.critics, model.target_critics, groups, strict=True):
        returns = make_return(keys, horizon.gamma)
        bounds = ValueRange(horizon.gamma, scale if horizon == environment else NoReturnScale())
        model.bounds.append(bounds.to(next(model.parameters()).device))
        binds = not keys.use_target_network and horizon.gamma < 1.0
        made.append(
            HorizonCritics(
                q,
                target_q,
                make_norm_pass(q, target_q, keys, returns),
                returns,
                horizon,
                rewarding,
                main=horizon == environment,
                bounds=bounds if binds else None,
            )
        )
    return tuple(made)


def make_norm_pass(
    q: Ensemble, target_q: Ensemble, keys: OffPolicyConfig, returns: Return
) -> NormPass | None:
    """Return the pass of critics with a batch norm; None for others."""
    if not has_batch_norm(q.members[0]):
        return None
    alike = keys.seq_encoder is None and not returns.needs_padding
    return NormPass(q, target_q, own_target=keys.use_target_network, all_rows_exist=alike)
