"""Reward by the prediction error of a model (arXiv 1705.05363)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.extensions.base import Build, Context, Extension, Horizon
from algorithm.nn.models.dynamics import check_dynamic
from algorithm.ops.intrinsic import merge_moments, prediction_error, standard_deviation
from algorithm.ops.shapes import masked_mean, window_mean


class PredictionError(Protocol):
    """Prediction error of each transition."""

    def __call__(self, network: nn.Module, state: Tensor, action: Tensor, next_state: Tensor) -> Tensor:
        """Return errors [B, T] of state, next_state [B, T, S] and action [B, T, A]."""
        ...


def forward_error(network: nn.Module, state: Tensor, action: Tensor, next_state: Tensor) -> Tensor:
    """Return ½‖f(s, a) − s'‖² (arXiv 1705.05363, equation 6)."""
    return prediction_error(network(state, action), next_state)


def inverse_error(network: nn.Module, state: Tensor, action: Tensor, next_state: Tensor) -> Tensor:
    """Return ½‖g(s, s') − a‖², of the flat action."""
    return prediction_error(network(state, next_state), action)


class RunningDeviation(nn.Module):
    """Standard deviation of every value since the start, in double precision.

    All values count alike, as in arXiv 1808.04355, section 2.2. A bonus then fades as the model learns, for
    the large errors of the beginning stay in the deviation. A well predicted environment cannot drive it to
    0, where the next bonus would have no bound. With a moving average the bonus would have no bound and
    would not fade: the remaining noise would stay rewarded.
    """

    count: Tensor  # []
    mean: Tensor  # []
    square: Tensor  # [] sum of squared deviations from the mean

    def __init__(self) -> None:
        super().__init__()
        for name in ("count", "mean", "square"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    @override
    def forward(self) -> Tensor:
        """Return σ [], 1 before there is one."""
        return standard_deviation(self.count, self.square).to(torch.get_default_dtype())

    def observe(self, x: Tensor, valid: Tensor) -> None:
        """Take the valid ones of values [B, T] into the statistics."""
        new = merge_moments((self.count, self.mean, self.square), x, valid)
        for own, value in zip((self.count, self.mean, self.square), new, strict=True):
            own.copy_(value)


class Curiosity(Extension):
    """Bonus of ``strength`` · error / σ on every transition of a window.

    States are those of the online encoder, which gets no gradient from here. An episode's last
    transition leads to the state of the final observation, with an error as any other.

    The errors of learned positions alone enter σ: those of a burn-in and of the steps behind are learned
    positions of other windows. It is updated once in an update, after the bonus has been taken.

    network:  the model, always in evaluation mode, so that a transition has one error at a time
    error: of the network
    strength: factor on the bonus
    """

    signal = "curiosity"

    def __init__(
        self, network: nn.Module, error: PredictionError, strength: float, horizon: Horizon | None = None
    ) -> None:
        super().__init__("curiosity/bonus_mean", "curiosity/bonus_std")
        self.horizon = horizon
        self.own.append(network)
        self.deviation = RunningDeviation()
        self._error, self._strength = error, strength
        self.eval()

    @torch.no_grad()
    @override
    def reward_bonus(self, ctx: Context) -> Tensor:
        """Return the bonus [B, W], zero where there is no transition."""
        error, valid = self._errors(ctx, slice(0, ctx.batch.window))
        return torch.where(valid, self._scaled(error), 0.0)

    @override
    def own_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return the mean error of the learned transitions."""
        error, valid = self._errors(ctx, ctx.learned)
        known = torch.where(valid, error, 0.0)
        with torch.no_grad():
            self.shown.show(bonus_summary("curiosity", self._scaled(known), valid))
            self.deviation.observe(known, valid)
        return {"curiosity": window_mean(known, valid)}

    def _errors(self, ctx: Context, at: slice) -> tuple[Tensor, Tensor]:
        """Return errors of transitions and the mask of existing ones, [B, T] each."""
        state, batch = ctx.state.detach(), ctx.batch
        after = slice(at.start + 1, at.stop + 1)
        error = self._error(self.own[0], state[:, at], batch.action[:, at], state[:, after])
        return error, batch.valid[:, at] & batch.obs_valid[:, after]

    def _scaled(self, error: Tensor) -> Tensor:
        deviation: Tensor = self.deviation()
        return error * (self._strength / deviation)


def make_curiosity(build: Build) -> Curiosity | None:
    """Return the configured bonus, if any. Raises ModelError for a network that returns a wrong shape."""
    options, spec, size = build.options, build.spec, build.state_size
    if options.curiosity is None:
        return None
    horizon = build.horizon(build.signals.curiosity)
    if options.curiosity == "FORWARD":
        network = build.make_network("ModelForwardDynamic", spec, size)
        check_dynamic(network, (size, spec.action.size), size)
        return Curiosity(network, forward_error, options.curiosity_strength, horizon)
    network = build.make_network("ModelInverseDynamic", spec, size)
    check_dynamic(network, (size, size), spec.action.size)
    return Curiosity(network, inverse_error, options.curiosity_strength, horizon)


def bonus_summary(name: str, bonus: Tensor, valid: Tensor) -> dict[str, Tensor]:
    """Return metrics ``name/…`` of mean and deviation of the valid ones of a bonus [B, T]."""
    bonus, valid = bonus.flatten(), valid.flatten()
    mean = masked_mean(bonus, valid)
    variance = masked_mean((bonus - mean).square(), valid)
    return {f"{name}/bonus_mean": mean, f"{name}/bonus_std": variance.sqrt()}
