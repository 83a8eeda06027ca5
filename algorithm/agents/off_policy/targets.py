"""Targets of the critics: objects chosen once, at construction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.model import Model, Passes, Separate, make_passes
from algorithm.extensions.base import Context, Extension, Horizon, by_horizon
from algorithm.nn.ensemble import Ensemble
from algorithm.nn.return_scale import NoReturnScale, ReturnScale
from algorithm.ops.returns import last_of_n, n_step_discount, one_step, soft_n_step, soft_vtrace
from algorithm.ops.shapes import masked_mean


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The L = T + n − 1 transitions from the first learned position on, with the values that follow them."""

    reward: Tensor  # [B, L]
    terminated: Tensor  # [B, L] bool
    valid: Tensor  # [B, L] bool
    next_value: Tensor  # [B, L] V(s_{j+1})
    next_bonus: Tensor  # [B, L] h(s_{j+1})
    log_ratio: Callable[[], Tensor]  # [B, L−1] joint log π/μ at columns 1 … L−1; evaluated if needed


@dataclass(frozen=True, kw_only=True)
class LearningTarget:
    """Target of the critics' loss, with the weights of its rows.

    unit: size of a unit of reward, in what the critics learn: a tensor [] with ``reward_scaling``, else 1
    """

    y: Tensor  # [B, T]
    spread: Tensor | None  # [J, B, T] deviations from y
    q_target: Callable[[], Tensor]  # the target critics' values of the stored actions, [E, B, T]
    weight: Tensor  # [B]
    valid: Tensor  # [B, T]
    unit: Tensor | float


class ReturnTarget(Protocol):
    """y [B, T] from the steps, with values to log as the second result."""

    def rows(self, valid: Tensor) -> Tensor | None:
        """Return the transitions [B, T] behind which y bootstraps, of valid [B, L]; None: behind all."""

    def __call__(self, steps: Steps) -> tuple[Tensor, dict[str, Tensor]]:
        """Return y, computed by a function of :mod:`algorithm.ops.returns`, and values to log."""

    def spread(self, centred: Tensor, steps: Steps) -> Tensor:
        """Return deviations of the return from y [J, B, T], of deviations [J, B, L] of the bootstrap's value.

        With ``rows`` they are [J, B, T], of those alone.
        """


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


def spread_out(value: Tensor, rows: Tensor, shape: torch.Size) -> Tensor:
    """Return values [B·T] at their ``rows`` of a [B, L], 0 elsewhere; of a row met twice either is right."""
    full = value.new_zeros(shape)
    full.view(-1)[rows] = value
    return full


def make_target(keys: OffPolicyConfig, gamma: float) -> ReturnTarget:
    """Return the target for these settings."""
    if keys.n_step == 1:
        return OneStepTarget(gamma)
    if not keys.use_n_step_is:
        return NStepTarget(gamma, keys.n_step)
    return VTraceTarget(gamma, keys.n_step, keys.v_lambda, keys.v_rho, keys.v_c)


class ValueRange(nn.Module):
    """Smallest and largest reward so far, and bounds that they give to bootstrapped values.

    Critics without target networks follow themselves. Where no episode has ended, nothing else corrects
    them, and values far above any return came of it (Acrobot). Rewards are those of updates, with relabelled
    ones and signals. 0 is among them: an end has it.

    gamma:  of the values
    scale:  of rewards; signals that share the environment's horizon are scaled back with its rewards
    binds:  values are bounded; they never are with γ = 1
    limits: [2] both rewards, before scaling
    seen:   [2] the same, with those of the present batch
    """

    limits: Tensor
    seen: Tensor

    def __init__(self, gamma: float, scale: ReturnScale | NoReturnScale, *, binds: bool) -> None:
        super().__init__()
        self._gamma = gamma
        self._scale = scale
        self._binds = binds and gamma < 1.0
        self.register_buffer("limits", torch.zeros(2))
        self.register_buffer("seen", torch.zeros(2), persistent=False)

    @override
    def forward(self, value: Tensor, reward: Tensor, bonus: Tensor, valid: Tensor) -> Tensor:
        """Return V within its bounds: [B, L], of r and h [B, L]. The largest bonus counts at every step."""
        unit = self._scale.scale
        rewards = reward.where(valid, 0.0) / unit
        self.seen.copy_(torch.stack(torch.aminmax(torch.cat([rewards.flatten(), self.limits]))))
        if not self._binds:
            return value
        bonuses = torch.cat([bonus.where(valid, 0.0).flatten(), bonus.new_zeros(1)])
        added = torch.stack(torch.aminmax(bonuses))
        low, high = (self.seen * unit + self._gamma * added) / (1.0 - self._gamma)
        return value.clamp(low, high)

    def settle(self, usable: Tensor) -> None:
        """Take over the rewards of the last batch, if its step was ``usable`` [] bool."""
        self.limits.copy_(torch.where(usable, self.seen, self.limits))


@dataclass(frozen=True)
class HorizonCritics:
    """Critics of the rewards that have one horizon, and what they learn towards.

    extensions: whose rewards they are of
    main:       the environment's reward and the bonus h(s) are part of their values
    held:       bounds of their values
    apart:      passes by the present critics, as :class:`Separate`
    """

    target_q: Ensemble
    passes: Passes
    apart: Passes
    returns: ReturnTarget
    horizon: Horizon
    extensions: Sequence[Extension]
    main: bool
    held: ValueRange

    def reward(self, ctx: Context) -> Tensor:
        """Return the sum of its rewards [B, W]."""
        environment = ctx.batch.reward if self.main else torch.zeros_like(ctx.batch.reward)
        return environment + sum(one.reward_bonus(ctx) for one in self.extensions)

    def steps(self, ctx: Context, value: Tensor, bonus: Tensor, log_ratio: Callable[[], Tensor]) -> Steps:
        """Return the transitions from the first learned one on.

        value, bonus: [B, L] V without the bonus of its own state, and h, behind each
        log_ratio:    of :class:`Steps`
        """
        first, batch = slice(ctx.burn_in, None), ctx.batch
        ended = batch.terminated[:, first]
        bonus = bonus if self.main else torch.zeros_like(bonus)
        reward, valid = self.reward(ctx)[:, first], batch.valid[:, first]
        return Steps(
            reward=reward,
            terminated=ended if self.horizon.ends else torch.zeros_like(ended),
            valid=valid,
            next_value=self.held(value, reward, bonus, valid) + bonus,
            next_bonus=bonus,
            log_ratio=log_ratio,
        )


def make_critics(
    model: Model, keys: OffPolicyConfig, extensions: Sequence[Extension], scale: ReturnScale | NoReturnScale
) -> list[HorizonCritics]:
    """Return the critics of each horizon, those of the environment's reward first.

    The bounds of their values become the model's, which saves them.
    """
    own = Horizon(keys.gamma)
    groups = by_horizon(extensions, own).items()
    binds = not keys.use_target_network
    bounds = [
        ValueRange(horizon.gamma, scale if horizon == own else NoReturnScale(), binds=binds)
        for horizon, _ in groups
    ]
    model.bounds.extend(bounds).to(next(model.parameters()).device)
    return [
        HorizonCritics(
            target_q,
            make_passes(q, target_q, keys),
            Separate(q, target_q),
            make_target(keys, horizon.gamma),
            horizon,
            rewarding,
            main=horizon == own,
            held=held,
        )
        for q, target_q, held, (horizon, rewarding) in zip(
            model.critics, model.target_critics, bounds, groups, strict=True
        )
    ]
