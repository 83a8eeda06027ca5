"""Random network distillation (arXiv 1810.12894): a bonus, and a choice among several sampled actions."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.extensions.base import Build, Context, Extension, Horizon
from algorithm.extensions.curiosity import RunningDeviation, bonus_summary
from algorithm.nn.models.dynamics import check_dynamic
from algorithm.ops.intrinsic import distillation_error
from algorithm.ops.shapes import window_mean


class RND(Extension):
    """Network trained to reproduce a fixed random one on stored (state, action).

    Its error is small on frequent inputs and large on new ones. An exploring actor takes the one with the
    largest error of ``num_candidates`` actions of its policy. The reward stays as it is, unlike the paper's;
    see :class:`RndBonus`.

    network: trained
    fixed:   random, and so for ever; part of every checkpoint
    num_candidates: actions to choose from
    shown:   names of metrics
    """

    def __init__(self, network: nn.Module, fixed: nn.Module, num_candidates: int, *shown: str) -> None:
        super().__init__(*shown)
        self.own.append(network)
        self.fixed = fixed.requires_grad_(False)
        self.num_candidates = num_candidates
        self.eval()

    @override
    def own_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return the mean error of the learned transitions."""
        error, valid = self._errors(ctx, ctx.learned)
        return {"rnd": window_mean(error, valid)}

    @override
    def score_actions(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the errors [N, M] of M actions [N, M, A] in states [N, S]."""
        return self._error(state.unsqueeze(1).expand(-1, action.shape[1], -1), action)

    def _errors(self, ctx: Context, at: slice) -> tuple[Tensor, Tensor]:
        """Return errors of transitions, 0 for missing ones, and the mask of existing ones, [B, T] each."""
        valid = ctx.batch.valid[:, at]
        error = self._error(ctx.state[:, at].detach(), ctx.batch.action[:, at])
        return torch.where(valid, error, 0.0), valid

    def _error(self, state: Tensor, action: Tensor) -> Tensor:
        return distillation_error(self.own[0](state, action), self.fixed(state, action))


class RndBonus(RND):
    """The same with a bonus of ``strength`` · error / σ, σ of all learned errors since the start.

    The paper divides by the deviation of the bonuses' returns.
    """

    signal = "rnd"

    def __init__(
        self,
        network: nn.Module,
        fixed: nn.Module,
        num_candidates: int,
        *,
        strength: float,
        learning_rate: float,
        horizon: Horizon,
    ) -> None:
        super().__init__(network, fixed, num_candidates, "rnd/bonus_mean", "rnd/bonus_std")
        self.deviation = RunningDeviation()
        self.learning_rate, self._strength = learning_rate, strength
        self.horizon = horizon
        self.eval()

    @torch.no_grad()
    @override
    def reward_bonus(self, ctx: Context) -> Tensor:
        """Return the bonus [B, W], zero where there is no transition."""
        error, _ = self._errors(ctx, slice(0, ctx.batch.window))
        return self._scaled(error)

    @override
    def own_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return the mean error of the learned transitions."""
        error, valid = self._errors(ctx, ctx.learned)
        with torch.no_grad():
            self.shown.show(bonus_summary("rnd", self._scaled(error), valid))
            self.deviation.observe(error, valid)
        return {"rnd": window_mean(error, valid)}

    def _scaled(self, error: Tensor) -> Tensor:
        deviation: Tensor = self.deviation()
        return error * (self._strength / deviation)


def make_novelty(build: Build) -> RND | None:
    """Return the score, the bonus or both; None where the configuration asks for neither.

    Both share their networks. Raises ModelError for a network that returns a wrong shape.
    """
    options, bonus = build.options, build.signals.rnd
    if not (options.use_rnd or bonus.strength):
        return None
    network, fixed = (build.make_network("ModelRND", build.spec, build.state_size) for _ in range(2))
    check_dynamic(network, (build.state_size, build.spec.action.size), "F")
    num_candidates = options.rnd_n_sample if options.use_rnd else 1
    if not bonus.strength:
        return RND(network, fixed, num_candidates)
    return RndBonus(
        network,
        fixed,
        num_candidates,
        strength=bonus.strength,
        learning_rate=bonus.learning_rate,
        horizon=build.horizon(bonus),
    )
