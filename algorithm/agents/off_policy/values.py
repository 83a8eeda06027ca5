"""Meanings of a critic's outputs: a number, quantiles, or a histogram. Chosen at construction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from algorithm.agents.off_policy.config import OffPolicyConfig
from algorithm.agents.off_policy.targets import LearningTarget
from algorithm.core.spec import ActionSpec, AgentSpec
from algorithm.ops.distributional import (
    cross_entropy,
    histogram,
    midpoints,
    quantile_huber,
    truncated,
)
from algorithm.ops.sac import average, clip_binds, clipped_critic_loss, critic_loss, smallest
from algorithm.ops.shapes import masked_mean, valid_share

ReduceChoices = Callable[[Tensor], Tensor]
"""Reduction over discrete choices, [..., P, N] -> [..., P]; linear in its argument."""

Reduce = Callable[[Tensor], Tensor]
"""Values of several critics [M, ...] -> one value [...]."""


def choose_reduce(config: OffPolicyConfig) -> tuple[Reduce, Reduce]:
    """Return what targets take of the drawn critics, and what the policy climbs of all of them.

    REDQ (arXiv 2101.05982, algorithm 1): the policy climbs the mean where targets use a subset. So it does
    with quantiles, of which targets drop the largest instead (TQC, arXiv 2005.04269).
    """
    if config.value_head == "quantile":
        return average, average
    target = average if config.ensemble_q_reduce == "mean" else smallest
    return target, target if config.ensemble_q_sample == config.ensemble_q_num else average


@dataclass(frozen=True)
class Bootstrap:
    """Value of the states behind, by the target critics.

    spread: [J, P] deviations of the atoms of the return's distribution, with the mean 0; None: of a number
    """

    value: Tensor  # [P]
    spread: Tensor | None = None


@dataclass(frozen=True)
class ScalarValues:
    """A number for each value (arXiv 1812.05905).

    per_value:    K, outputs for each of a critic's N values; [E, K, P] is [E, P] here
    reduce:       of several target critics
    clip_epsilon: how far the loss lets a prediction move from the target network's; 0 or less: any distance
    """

    reduce: Reduce
    clip_epsilon: float = 0.0
    per_value = 1

    def point(self, out: Tensor) -> Tensor:
        """Return the mean return [..., P, N] of outputs [..., P, N·K]: themselves."""
        return out

    def taken(self, out: Tensor, choose: ReduceChoices) -> Tensor:
        """Return what the outputs [E, P, N·K] say of one action, [E, K, P]: Q(s, a)."""
        return choose(out)

    def mean(self, taken: Tensor) -> Tensor:
        """Return the mean return [E, B, T] of ``taken`` [E, K, B, T]: itself."""
        return taken

    def bootstrap(self, out: Tensor, choose: ReduceChoices) -> Bootstrap:
        """Return the value of a state by the drawn target critics' outputs [M, P, N·K]."""
        return Bootstrap(choose(self.reduce(out)))

    def loss(self, taken: Tensor, target: LearningTarget) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar loss of ``taken`` [E, K, B, T], and values to log.

        It is the squared error; clipped, with the share of the values that the clip holds back.
        """
        y, weight, valid = target.y, target.weight, target.valid
        if self.clip_epsilon <= 0:
            return critic_loss(taken, y, weight, valid), {}
        slow = target.q_target()
        binds = clip_binds(taken, y, slow, epsilon=self.clip_epsilon)
        share = masked_mean(binds.float().mean(0).flatten(), valid.flatten())
        loss = clipped_critic_loss(taken, y, slow, weight, valid, epsilon=self.clip_epsilon)
        return loss, {"value/clipped": share}


class QuantileValues:
    """Quantiles of the return, of whose target the largest are dropped (TQC, arXiv 2005.04269).

    The pooled atoms of the drawn target critics keep the shape of their distribution; its mean is the value.

    drop: atoms dropped for each target critic
    """

    def __init__(self, num: int, drop: int, device: torch.device) -> None:
        self.per_value, self._drop = num, drop
        self._level = midpoints(num, device)

    def point(self, out: Tensor) -> Tensor:
        """Return the mean of the quantiles."""
        return _by_value(out, self.per_value).mean(-1)

    def taken(self, out: Tensor, choose: ReduceChoices) -> Tensor:
        """Return the quantiles of one action: exact in the mean, and as if its branches moved together."""
        return choose(_bins_first(out, self.per_value))

    def mean(self, taken: Tensor) -> Tensor:
        """Return the mean of the quantiles."""
        return taken.mean(-3)

    def bootstrap(self, out: Tensor, choose: ReduceChoices) -> Bootstrap:
        """Return the mean of the atoms that are kept, and their deviations from it."""
        atoms = truncated(choose(_bins_first(out, self.per_value)), self._drop)
        value = atoms.mean(0)
        return Bootstrap(value, atoms - value)

    def loss(self, taken: Tensor, target: LearningTarget) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the quantile Huber loss, linear from one unit of reward on."""
        assert target.spread is not None
        atoms = (target.y + target.spread).flatten(1)
        each = quantile_huber(taken.flatten(2), atoms, self._level, kappa=target.unit)
        spread = taken.detach().std(-3, correction=0) / target.unit
        return _weighted(each, target), {"value/spread": spread}


class CategoricalValues:
    """Histograms that learn towards a number, spread by a normal (HL-Gauss, arXiv 2403.03950).

    They learn by cross-entropy.

    num:    bins
    limit:  their centres reach from −limit to limit
    mixes:  an action has several branches, whose histograms are averaged
    sigma:  of the normal, in widths of a bin
    reduce: of several target critics
    """

    def __init__(
        self, num: int, limit: float, device: torch.device, *, mixes: bool, sigma: float, reduce: Reduce
    ) -> None:
        self.per_value, self._limit, self._mixes, self._reduce = num, limit, mixes, reduce
        self._centres = torch.linspace(-limit, limit, num, device=device)
        width = 2.0 * limit / (num - 1)
        self._edges = torch.linspace(-limit - width / 2, limit + width / 2, num + 1, device=device)
        self._sigma = sigma * width

    def point(self, out: Tensor) -> Tensor:
        """Return the means of the histograms."""
        return _by_value(out, self.per_value).softmax(-1) @ self._centres

    def taken(self, out: Tensor, choose: ReduceChoices) -> Tensor:
        """Return the logarithms of the masses."""
        bins = _bins_first(out, self.per_value)
        if self._mixes:
            return choose(bins.softmax(-3)).clamp_min(1e-12).log()
        return choose(bins).log_softmax(-2)  # one choice: choosing is picking

    def mean(self, taken: Tensor) -> Tensor:
        """Return the mean of the histogram."""
        return (taken.exp() * self._centres.view(-1, 1, 1)).sum(-3)

    def bootstrap(self, out: Tensor, choose: ReduceChoices) -> Bootstrap:
        """Return the value of the means that the critics agree on."""
        return Bootstrap(choose(self._reduce(self.point(out))))

    def loss(self, taken: Tensor, target: LearningTarget) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the cross-entropy; a target beyond the range counts as its end, and is logged."""
        y = target.y.flatten()
        beyond = (y.abs() > self._limit).to(y.dtype)
        mass = histogram(y.clamp(-self._limit, self._limit), self._edges, sigma=self._sigma)
        each = cross_entropy(taken.flatten(2), mass)
        return _weighted(each, target), {"value/clamped": masked_mean(beyond, target.valid.flatten())}


Values = ScalarValues | QuantileValues | CategoricalValues
"""Meanings of a critic's outputs; shapes stand at the first."""


def _by_value(out: Tensor, num: int) -> Tensor:
    """Return outputs [..., N·K] as [..., N, K]."""
    return out.view(*out.shape[:-1], -1, num)


def _bins_first(out: Tensor, num: int) -> Tensor:
    """Return outputs [..., P, N·K] as [..., K, P, N]."""
    return _by_value(out, num).movedim(-1, -3)


def _weighted(each: Tensor, target: LearningTarget) -> Tensor:
    """Return ``Σ_e mean_B w · mean_t`` of losses [E, B·T]."""
    share = valid_share(target.valid, each.dtype) * (target.weight / len(target.weight)).unsqueeze(-1)
    return (each * share.flatten()).sum()


def make_values(config: OffPolicyConfig, action: ActionSpec, device: torch.device) -> Values:
    """Return the values of ``value_head``."""
    reduce, _ = choose_reduce(config)
    if config.value_head == "quantile":
        return QuantileValues(config.quantile_num, config.quantile_drop, device)
    if config.value_head == "categorical":
        size, mixes = (config.categorical_num, config.categorical_range), len(action.branches) > 1
        return CategoricalValues(*size, device, mixes=mixes, sigma=config.categorical_sigma, reduce=reduce)
    return ScalarValues(reduce, config.clip_epsilon)


def with_values(spec: AgentSpec, config: OffPolicyConfig) -> AgentSpec:
    """Return the spec with the outputs that a critic has for each value, as its networks need to know."""
    numbers = {"quantile": config.quantile_num, "categorical": config.categorical_num}
    return replace(spec, action=replace(spec.action, values=numbers.get(config.value_head, 1)))
