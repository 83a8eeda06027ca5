"""Rewards for what is new: errors of a model (arXiv 1705.05363), random network distillation (1810.12894)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.extensions.base import Build, Context, Extension, Horizon
from algorithm.nn.models.extensions import check_dynamic
from algorithm.ops.extensions import distillation_error, merge_moments, prediction_error, standard_deviation
from algorithm.ops.shapes import masked_mean, window_mean

PredictionError = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]
"""(network, state [B, T, S], action [B, T, A], next state [B, T, S]) -> errors of transitions [B, T]."""


def forward_error(network: nn.Module, state: Tensor, action: Tensor, next_state: Tensor) -> Tensor:
    """Return ½‖f(s, a) − s'‖² [B, T] (arXiv 1705.05363, equation 6)."""
    return prediction_error(network(state, action), next_state)


def inverse_error(network: nn.Module, state: Tensor, action: Tensor, next_state: Tensor) -> Tensor:
    """Return ½‖g(s, s') − a‖² [B, T] of the flat action a."""
    return prediction_error(network(state, next_state), action)


class RunningDeviation(nn.Module):
    """Standard deviation of all values since the start, in double precision.

    All values count alike, as in arXiv 1808.04355, section 2.2. A bonus then fades as the model learns, since
    the large errors of the beginning stay in the deviation. A moving average would follow the errors towards
    0: it would keep rewarding the noise that remains, and make the bonus of the next new state unbounded.
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
        """Return σ [] in the default dtype; 1 if it is 0 but for rounding, as before the second value."""
        return standard_deviation(self.count, self.square).to(torch.get_default_dtype())

    def observe(self, x: Tensor, valid: Tensor) -> None:
        """Add the valid values of ``x`` [B, T] to the statistics; valid: [B, T] bool."""
        new = merge_moments((self.count, self.mean, self.square), x, valid)
        for moment, value in zip((self.count, self.mean, self.square), new, strict=True):
            moment.copy_(value)


class Novelty(Extension, ABC):
    """Base of extensions that learn to predict frequent transitions with a small error."""

    @abstractmethod
    def _errors(self, ctx: Context, at: slice) -> tuple[Tensor, Tensor]:
        """Return the errors of the transitions ``at``, 0 for missing ones, and the mask of existing ones.

        Both are [B, T] with the T positions of the slice ``at``.
        """

    @override
    def own_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return the mean error of the learned transitions, by the name of the signal."""
        return {self.signal: window_mean(*self._errors(ctx, ctx.learned))}


class Bonus(Novelty):
    """Base of a bonus ``strength`` · error / σ on transitions, σ over all learned errors since the start.

    Only errors at learned positions enter σ: the other positions of a window are learned in other windows.
    It is updated once per update, after the bonus has been computed.
    """

    deviation: RunningDeviation
    strength: float

    @torch.no_grad()
    @override
    def reward_bonus(self, ctx: Context) -> Tensor:
        """Return the bonus [B, W], 0 where no transition exists."""
        error, _ = self._errors(ctx, slice(0, ctx.batch.window))
        return self._scaled(error)

    @override
    def own_losses(self, ctx: Context) -> Mapping[str, Tensor]:
        """Return the mean error of the learned transitions; update σ and the metrics."""
        error, valid = self._errors(ctx, ctx.learned)
        with torch.no_grad():
            self.shown.show(bonus_summary(self.signal, self._scaled(error), valid))
            self.deviation.observe(error, valid)
        return {self.signal: window_mean(error, valid)}

    def _scaled(self, error: Tensor) -> Tensor:
        deviation: Tensor = self.deviation()
        return error * (self.strength / deviation)


class Curiosity(Bonus):
    """Bonus by the prediction error of a model.

    States are those of the online encoder, which gets no gradient from this. The last transition of an
    episode leads to the state of its final observation, and has an error like any other.

    network:  the model, always in evaluation mode, so that its errors do not depend on the batch
    error:    error of the network on transitions
    strength: factor on the bonus
    horizon:  of the bonus; None: the agent's
    """

    signal = "curiosity"

    def __init__(
        self, network: nn.Module, error: PredictionError, strength: float, horizon: Horizon | None = None
    ) -> None:
        super().__init__("curiosity/bonus_mean", "curiosity/bonus_std")
        self.horizon = horizon
        self.own.append(network)
        self.deviation = RunningDeviation()
        self._error, self.strength = error, strength
        self.eval()

    @override
    def _errors(self, ctx: Context, at: slice) -> tuple[Tensor, Tensor]:
        state, batch = ctx.state.detach(), ctx.batch
        after = slice(at.start + 1, at.stop + 1)
        error = self._error(self.own[0], state[:, at], batch.action[:, at], state[:, after])
        there = batch.valid[:, at] & batch.obs_valid[:, after]
        return torch.where(there, error, 0.0), there


def make_curiosity(build: Build) -> Curiosity | None:
    """Return the bonus of the key ``curiosity``; None if that is null.

    Raises ModelError for a network that returns a wrong shape.
    """
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
    """Return the metrics ``NAME/bonus_mean`` and ``NAME/bonus_std``, of the valid entries [B, T]."""
    bonus, valid = bonus.flatten(), valid.flatten()
    mean = masked_mean(bonus, valid)
    variance = masked_mean((bonus - mean).square(), valid)
    return {f"{name}/bonus_mean": mean, f"{name}/bonus_std": variance.sqrt()}


class RND(Novelty):
    """Random network distillation: a network learns to reproduce a fixed random one on (state, action).

    Its error is small on frequent inputs and large on new ones. Of ``num_candidates`` sampled actions an
    exploring actor takes that with the largest error. Unlike in the paper there is no reward; for that see
    :class:`RndBonus`.

    network: trained network
    fixed:   random network, which is never trained; every checkpoint holds it
    num_candidates: number of sampled actions to choose from
    shown:   names of metrics
    """

    signal = "rnd"

    def __init__(self, network: nn.Module, fixed: nn.Module, num_candidates: int, *shown: str) -> None:
        super().__init__(*shown)
        self.own.append(network)
        self.fixed = fixed.requires_grad_(False)
        self.num_candidates = num_candidates
        self.eval()

    @override
    def score_actions(self, state: Tensor, action: Tensor) -> Tensor:
        """Return the errors [N, M] of M actions [N, M, A] in states [N, S]."""
        return self._error(state.unsqueeze(1).expand(-1, action.shape[1], -1), action)

    @override
    def _errors(self, ctx: Context, at: slice) -> tuple[Tensor, Tensor]:
        """Return the errors of the transitions ``at``, and the mask of existing ones; see the base class."""
        valid = ctx.batch.valid[:, at]
        error = self._error(ctx.state[:, at].detach(), ctx.batch.action[:, at])
        return torch.where(valid, error, 0.0), valid

    def _error(self, state: Tensor, action: Tensor) -> Tensor:
        return distillation_error(self.own[0](state, action), self.fixed(state, action))


class RndBonus(Bonus, RND):
    """Random network distillation with a bonus of ``strength`` · error / σ (arXiv 1810.12894).

    σ is the deviation of the errors; the paper divides by the deviation of the bonuses' returns.
    """

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
        self.learning_rate, self.strength = learning_rate, strength
        self.horizon = horizon
        self.eval()


def make_novelty(build: Build) -> RND | None:
    """Return RND for choosing actions (``use_rnd``), as a bonus (``reward_signals.rnd``), or for both.

    Both uses share their networks. Returns None if both are off. Raises ModelError for a network that returns
    a wrong shape.
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
