"""Meanings of a critic's outputs: a number, quantiles, or a histogram. Chosen at construction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from typing_extensions import override

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.records import CriticTarget
from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.ops.discrete import reduce_branches
from algorithm.ops.distributional import (
    cross_entropy,
    histogram,
    midpoints,
    quantile_huber,
    truncated,
)
from algorithm.ops.sac import average, clip_binds, clipped_critic_loss, critic_loss, smallest
from algorithm.ops.shapes import masked_mean, valid_share

Reduce = Callable[[Tensor], Tensor]
"""Values of several critics [M, ...] -> one value [...]."""


def choose_reduce(config: OffPolicyConfig) -> tuple[Reduce, Reduce]:
    """Return the reductions over critics in targets (of the drawn critics) and in the policy's loss (of all).

    REDQ (arXiv 2101.05982, algorithm 1): the policy maximises the mean where targets use a subset. With
    quantiles it does so, too, and targets drop the largest ones instead (TQC, arXiv 2005.04269).
    """
    if config.value_head == "quantile":
        return average, average
    target = average if config.ensemble_q_reduce == "mean" else smallest
    return target, target if config.ensemble_q_sample == config.ensemble_q_num else average


class Values(ABC):
    """Meaning of a critic's outputs.

    A critic's input is the continuous action; it has N values q [..., P, N], one for each discrete choice
    (arXiv 1912.11077). The value of an action is the mean over branches of the chosen ones.

    action:     action space of the agent
    per_value:  D, outputs for each of a critic's N values
    has_spread: targets are distributions
    clips:      the loss needs the target critics' values of the stored actions
    """

    per_value = 1
    has_spread = False
    clips = False

    def __init__(self, action: ActionSpec) -> None:
        self._width, self._branches = action.discrete, len(action.branches)

    def expected(self, q: Tensor, probs: Tensor | None) -> Tensor:
        """Return the expectation [..., P] of values q [..., P, N] under the discrete part of a policy.

        probs: [P, ΣN] of its choices; None without discrete part
        """
        return q.squeeze(-1) if probs is None else reduce_branches(q, probs, self._branches)

    def of_action(self, q: Tensor, action: Tensor) -> Tensor:
        """Return Q(s, a) [..., P] of values q [..., P, N] for flat actions [P, A]."""
        return self.expected(q, action[..., : self._width] if self._width else None)

    def point(self, out: Tensor) -> Tensor:
        """Return the expected returns [..., P, N] of outputs [..., P, N·D]; here the outputs themselves."""
        return out

    def mean(self, taken: Tensor) -> Tensor:
        """Return the expected returns [E, B, T] of ``taken`` [E, (D,) B, T]; here ``taken`` itself."""
        return taken

    @abstractmethod
    def taken(self, out: Tensor, action: Tensor) -> Tensor:
        """Return the predictions [E, (D,) P] for the actions taken, flat [P, A], of outputs [E, P, N·D]."""

    @abstractmethod
    def bootstrap(self, out: Tensor, probs: Tensor | None) -> Tensor:
        """Return the values of states, [P] or atoms [J, P], by target critics' outputs [M, P, N·D].

        probs: [P, ΣN] of the policy's discrete choices; None without discrete part
        """

    @abstractmethod
    def loss(self, taken: Tensor, target: CriticTarget) -> Tensor:
        """Return the scalar loss of the predictions ``taken`` [E, (D,) B, T]."""

    def metrics(self, taken: Tensor, target: CriticTarget) -> dict[str, Tensor]:
        """Return values to log of the predictions ``taken`` [E, (D,) B, T], without gradient."""
        return {}


class ScalarValues(Values):
    """Values that are a number each (arXiv 1812.05905).

    reduce: reduction over target critics
    """

    def __init__(self, action: ActionSpec, reduce: Reduce) -> None:
        super().__init__(action)
        self.reduce = reduce

    @override
    def taken(self, out: Tensor, action: Tensor) -> Tensor:
        """Return Q(s, a) [E, P]."""
        return self.of_action(out, action)

    @override
    def bootstrap(self, out: Tensor, probs: Tensor | None) -> Tensor:
        """Return the reduced value [P] of the target critics."""
        return self.expected(self.reduce(out), probs)

    @override
    def loss(self, taken: Tensor, target: CriticTarget) -> Tensor:
        """Return the squared error."""
        return critic_loss(taken, target.y, target.weight, target.valid)


class ClippedValues(ScalarValues):
    """Numbers whose predictions the loss clips to a distance ``epsilon`` from the target network's."""

    clips = True

    def __init__(self, action: ActionSpec, reduce: Reduce, epsilon: float) -> None:
        super().__init__(action, reduce)
        self._epsilon = epsilon

    @override
    def loss(self, taken: Tensor, target: CriticTarget) -> Tensor:
        """Return the squared error of predictions clipped around the target's ``slow_q``."""
        assert target.slow_q is not None
        y, slow, weight, valid = target.y, target.slow_q, target.weight, target.valid
        return clipped_critic_loss(taken, y, slow, weight, valid, epsilon=self._epsilon)

    @override
    def metrics(self, taken: Tensor, target: CriticTarget) -> dict[str, Tensor]:
        """Return the share of predictions whose gradient the clip removes."""
        assert target.slow_q is not None
        is_clipped = clip_binds(taken, target.y, target.slow_q, epsilon=self._epsilon)
        return {"value/clipped": masked_mean(is_clipped.float().mean(0).flatten(), target.valid.flatten())}


class QuantileValues(Values):
    """Quantiles of the return; targets drop the largest ones (TQC, arXiv 2005.04269).

    The atoms of a target are the pooled quantiles of the drawn target critics; their mean is the value.

    num: D, quantiles per value; drop: quantiles dropped per target critic
    """

    has_spread = True

    def __init__(self, action: ActionSpec, num: int, drop: int, device: torch.device) -> None:
        super().__init__(action)
        self.per_value, self._drop = num, drop
        self._level = midpoints(num, device)

    @override
    def point(self, out: Tensor) -> Tensor:
        """Return the means [..., P, N] of the quantiles in outputs [..., P, N·D]."""
        return _by_value(out, self.per_value).mean(-1)

    @override
    def taken(self, out: Tensor, action: Tensor) -> Tensor:
        """Return the quantiles [E, D, P] of the actions taken: the mean over branches of equal levels.

        Their mean is exact; their spread is that of branches whose returns are fully correlated.
        """
        return self.of_action(_bins_first(out, self.per_value), action)

    @override
    def mean(self, taken: Tensor) -> Tensor:
        """Return the means [E, B, T] of the quantiles ``taken`` [E, D, B, T]."""
        return taken.mean(-3)

    @override
    def bootstrap(self, out: Tensor, probs: Tensor | None) -> Tensor:
        """Return the atoms [J, P] that are not dropped, whose mean is the value."""
        return truncated(self.expected(_bins_first(out, self.per_value), probs), self._drop)

    @override
    def loss(self, taken: Tensor, target: CriticTarget) -> Tensor:
        """Return the quantile Huber loss, linear from one unit of reward on."""
        assert target.spread is not None
        atoms = (target.y + target.spread).flatten(1)
        return _weighted(quantile_huber(taken.flatten(2), atoms, self._level, kappa=target.unit), target)

    @override
    def metrics(self, taken: Tensor, target: CriticTarget) -> dict[str, Tensor]:
        """Return the standard deviation of the quantiles, in units of reward."""
        return {"value/spread": taken.std(-3, correction=0) / target.unit}


class CategoricalValues(Values):
    """Histograms of the return, which learn by cross-entropy (HL-Gauss, arXiv 2403.03950).

    The target is a number, spread over the bins by a normal distribution.

    num:    number of bins
    limit:  the bins' centres reach from −limit to limit
    sigma:  standard deviation of the normal, in widths of a bin
    reduce: reduction over target critics
    """

    def __init__(
        self,
        action: ActionSpec,
        num: int,
        limit: float,
        device: torch.device,
        *,
        sigma: float,
        reduce: Reduce,
    ) -> None:
        super().__init__(action)
        self.per_value, self._limit, self._reduce = num, limit, reduce
        self._centres = torch.linspace(-limit, limit, num, device=device)
        width = 2.0 * limit / (num - 1)
        self._edges = torch.linspace(-limit - width / 2, limit + width / 2, num + 1, device=device)
        self._sigma = sigma * width

    @override
    def point(self, out: Tensor) -> Tensor:
        """Return the means [..., P, N] of the histograms in outputs [..., P, N·D]."""
        return _by_value(out, self.per_value).softmax(-1) @ self._centres

    @override
    def taken(self, out: Tensor, action: Tensor) -> Tensor:
        """Return the log masses [E, D, P] of the actions taken; histograms are averaged over branches."""
        bins = _bins_first(out, self.per_value)
        if self._branches > 1:
            return self.of_action(bins.softmax(-3), action).clamp_min(1e-12).log()
        return self.of_action(bins, action).log_softmax(-2)  # one choice: choosing is picking

    @override
    def mean(self, taken: Tensor) -> Tensor:
        """Return the means [E, B, T] of the histograms, whose log masses are ``taken`` [E, D, B, T]."""
        return (taken.exp() * self._centres.view(-1, 1, 1)).sum(-3)

    @override
    def bootstrap(self, out: Tensor, probs: Tensor | None) -> Tensor:
        """Return the value [P] of the histograms' means, reduced over the target critics."""
        return self.expected(self._reduce(self.point(out)), probs)

    @override
    def loss(self, taken: Tensor, target: CriticTarget) -> Tensor:
        """Return the cross-entropy; targets are clamped to the bins' centres."""
        y = target.y.flatten().clamp(-self._limit, self._limit)
        return _weighted(
            cross_entropy(taken.flatten(2), histogram(y, self._edges, sigma=self._sigma)), target
        )

    @override
    def metrics(self, taken: Tensor, target: CriticTarget) -> dict[str, Tensor]:
        """Return the share of the targets beyond the bins' centres."""
        beyond = (target.y.flatten().abs() > self._limit).to(target.y.dtype)
        return {"value/clamped": masked_mean(beyond, target.valid.flatten())}


def _by_value(out: Tensor, num: int) -> Tensor:
    """Return outputs [..., N·D] as [..., N, D]."""
    return out.view(*out.shape[:-1], -1, num)


def _bins_first(out: Tensor, num: int) -> Tensor:
    """Return outputs [..., P, N·D] as [..., D, P, N]."""
    return _by_value(out, num).movedim(-1, -3)


def _weighted(each: Tensor, target: CriticTarget) -> Tensor:
    """Return the scalar ``Σ_e mean_B w · mean_t`` of losses [E, B·T], with the target's weights."""
    share = valid_share(target.valid, each.dtype) * (target.weight / len(target.weight)).unsqueeze(-1)
    return (each * share.flatten()).sum()


def make_values(config: OffPolicyConfig, action: ActionSpec, device: torch.device) -> Values:
    """Return the meaning of critics' outputs that the key ``value_head`` chooses."""
    reduce, _ = choose_reduce(config)
    if config.value_head == "quantile":
        return QuantileValues(action, config.quantile_num, config.quantile_drop, device)
    if config.value_head == "categorical":
        size = config.categorical_num, config.categorical_range
        return CategoricalValues(action, *size, device, sigma=config.categorical_sigma, reduce=reduce)
    if config.clip_epsilon > 0:
        return ClippedValues(action, reduce, config.clip_epsilon)
    return ScalarValues(action, reduce)


def with_values(spec: AgentSpec, config: OffPolicyConfig) -> AgentSpec:
    """Return the spec with ``action.values`` set to D of the key ``value_head``, the outputs per value."""
    numbers = {"quantile": config.quantile_num, "categorical": config.categorical_num}
    return replace(spec, action=replace(spec.action, values=numbers.get(config.value_head, 1)))
