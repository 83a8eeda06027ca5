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
    """Return what targets take of the drawn critics, and what the policy climbs of all of them.

    REDQ (arXiv 2101.05982, algorithm 1): the policy climbs the mean where targets use a subset. So it does
    with quantiles, of which targets drop the largest instead (TQC, arXiv 2005.04269).
    """
    if config.value_head == "quantile":
        return average, average
    target = average if config.ensemble_q_reduce == "mean" else smallest
    return target, target if config.ensemble_q_sample == config.ensemble_q_num else average


class Values(ABC):
    """Meaning of a critic's outputs.

    Discrete outputs are conditioned on the continuous action that a critic was given (arXiv 1912.11077). An
    output q [..., P, N] has N values; that of an action is the mean over branches of the chosen ones.

    action:     of the agent
    per_value:  D, outputs for each of a critic's N values
    has_spread: targets have a distribution
    clips:      the loss needs the target critics' values of the stored actions
    """

    per_value = 1
    has_spread = False
    clips = False

    def __init__(self, action: ActionSpec) -> None:
        self._width, self._branches = action.discrete, len(action.branches)

    def expected(self, q: Tensor, probs: Tensor | None) -> Tensor:
        """Return R(q, π) [..., P] of values q [..., P, N] under the discrete part π of a policy.

        probs: [P, ΣN] of its choices; None without discrete part
        """
        return q.squeeze(-1) if probs is None else reduce_branches(q, probs, self._branches)

    def of_action(self, q: Tensor, action: Tensor) -> Tensor:
        """Return Q(s, a) [..., P] of values q [..., P, N] for flat actions [P, A]."""
        return self.expected(q, action[..., : self._width] if self._width else None)

    def point(self, out: Tensor) -> Tensor:
        """Return the mean return [..., P, N] of outputs [..., P, N·D]: themselves."""
        return out

    def mean(self, taken: Tensor) -> Tensor:
        """Return the mean return [E, B, T] of ``taken`` [E, (D,) B, T]: itself."""
        return taken

    @abstractmethod
    def taken(self, out: Tensor, action: Tensor) -> Tensor:
        """Return what outputs [E, P, N·D] say of flat actions [P, A]: [E, (D,) P]."""

    @abstractmethod
    def bootstrap(self, out: Tensor, probs: Tensor | None) -> Tensor:
        """Return the value of a state, [P] or its atoms [J, P], by target critics' outputs [M, P, N·D]."""

    @abstractmethod
    def loss(self, taken: Tensor, target: CriticTarget) -> Tensor:
        """Return the scalar loss of ``taken`` [E, (D,) B, T]."""

    def metrics(self, taken: Tensor, target: CriticTarget) -> dict[str, Tensor]:
        """Return values to log, of ``taken`` without gradient."""
        return {}


class ScalarValues(Values):
    """A number for each value (arXiv 1812.05905).

    reduce:  of several target critics
    epsilon: how far the loss lets a prediction move from the target network's; 0 or less: any distance
    """

    def __init__(self, action: ActionSpec, reduce: Reduce, epsilon: float = 0.0) -> None:
        super().__init__(action)
        self.reduce, self._epsilon = reduce, epsilon
        self.clips = epsilon > 0

    @override
    def taken(self, out: Tensor, action: Tensor) -> Tensor:
        """Return Q(s, a)."""
        return self.of_action(out, action)

    @override
    def bootstrap(self, out: Tensor, probs: Tensor | None) -> Tensor:
        """Return the value that the critics agree on."""
        return self.expected(self.reduce(out), probs)

    @override
    def loss(self, taken: Tensor, target: CriticTarget) -> Tensor:
        """Return the squared error, which is clipped where the target has ``slow_q``."""
        y, slow, weight, valid = target.y, target.slow_q, target.weight, target.valid
        if slow is None:
            return critic_loss(taken, y, weight, valid)
        return clipped_critic_loss(taken, y, slow, weight, valid, epsilon=self._epsilon)

    @override
    def metrics(self, taken: Tensor, target: CriticTarget) -> dict[str, Tensor]:
        """Return the share of the values that the clip holds back."""
        if target.slow_q is None:
            return {}
        binds = clip_binds(taken, target.y, target.slow_q, epsilon=self._epsilon)
        return {"value/clipped": masked_mean(binds.float().mean(0).flatten(), target.valid.flatten())}


class QuantileValues(Values):
    """Quantiles of the return, of whose target the largest are dropped (TQC, arXiv 2005.04269).

    The pooled atoms of the drawn target critics keep the shape of their distribution; its mean is the value.

    drop: atoms dropped for each target critic
    """

    has_spread = True

    def __init__(self, action: ActionSpec, num: int, drop: int, device: torch.device) -> None:
        super().__init__(action)
        self.per_value, self._drop = num, drop
        self._level = midpoints(num, device)

    @override
    def point(self, out: Tensor) -> Tensor:
        """Return the mean of the quantiles."""
        return _by_value(out, self.per_value).mean(-1)

    @override
    def taken(self, out: Tensor, action: Tensor) -> Tensor:
        """Return the quantiles of one action: exact in the mean, and as if its branches moved together."""
        return self.of_action(_bins_first(out, self.per_value), action)

    @override
    def mean(self, taken: Tensor) -> Tensor:
        """Return the mean of the quantiles."""
        return taken.mean(-3)

    @override
    def bootstrap(self, out: Tensor, probs: Tensor | None) -> Tensor:
        """Return the atoms that are kept, whose mean is the value."""
        return truncated(self.expected(_bins_first(out, self.per_value), probs), self._drop)

    @override
    def loss(self, taken: Tensor, target: CriticTarget) -> Tensor:
        """Return the quantile Huber loss, linear from one unit of reward on."""
        assert target.spread is not None
        atoms = (target.y + target.spread).flatten(1)
        return _weighted(quantile_huber(taken.flatten(2), atoms, self._level, kappa=target.unit), target)

    @override
    def metrics(self, taken: Tensor, target: CriticTarget) -> dict[str, Tensor]:
        """Return the spread of the quantiles."""
        return {"value/spread": taken.std(-3, correction=0) / target.unit}


class CategoricalValues(Values):
    """Histograms that learn towards a number, spread by a normal (HL-Gauss, arXiv 2403.03950).

    They learn by cross-entropy.

    num:    bins
    limit:  their centres reach from −limit to limit
    sigma:  of the normal, in widths of a bin
    reduce: of several target critics
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
        """Return the means of the histograms."""
        return _by_value(out, self.per_value).softmax(-1) @ self._centres

    @override
    def taken(self, out: Tensor, action: Tensor) -> Tensor:
        """Return the logarithms of the masses; of several branches the histograms are averaged."""
        bins = _bins_first(out, self.per_value)
        if self._branches > 1:
            return self.of_action(bins.softmax(-3), action).clamp_min(1e-12).log()
        return self.of_action(bins, action).log_softmax(-2)  # one choice: choosing is picking

    @override
    def mean(self, taken: Tensor) -> Tensor:
        """Return the mean of the histogram."""
        return (taken.exp() * self._centres.view(-1, 1, 1)).sum(-3)

    @override
    def bootstrap(self, out: Tensor, probs: Tensor | None) -> Tensor:
        """Return the value of the means that the critics agree on."""
        return self.expected(self._reduce(self.point(out)), probs)

    @override
    def loss(self, taken: Tensor, target: CriticTarget) -> Tensor:
        """Return the cross-entropy; a target beyond the range counts as its end."""
        y = target.y.flatten().clamp(-self._limit, self._limit)
        return _weighted(
            cross_entropy(taken.flatten(2), histogram(y, self._edges, sigma=self._sigma)), target
        )

    @override
    def metrics(self, taken: Tensor, target: CriticTarget) -> dict[str, Tensor]:
        """Return the share of the targets beyond the range."""
        beyond = (target.y.flatten().abs() > self._limit).to(target.y.dtype)
        return {"value/clamped": masked_mean(beyond, target.valid.flatten())}


def _by_value(out: Tensor, num: int) -> Tensor:
    """Return outputs [..., N·D] as [..., N, D]."""
    return out.view(*out.shape[:-1], -1, num)


def _bins_first(out: Tensor, num: int) -> Tensor:
    """Return outputs [..., P, N·D] as [..., D, P, N]."""
    return _by_value(out, num).movedim(-1, -3)


def _weighted(each: Tensor, target: CriticTarget) -> Tensor:
    """Return ``Σ_e mean_B w · mean_t`` of losses [E, B·T]."""
    share = valid_share(target.valid, each.dtype) * (target.weight / len(target.weight)).unsqueeze(-1)
    return (each * share.flatten()).sum()


def make_values(config: OffPolicyConfig, action: ActionSpec, device: torch.device) -> Values:
    """Return the values of ``value_head``."""
    reduce, _ = choose_reduce(config)
    if config.value_head == "quantile":
        return QuantileValues(action, config.quantile_num, config.quantile_drop, device)
    if config.value_head == "categorical":
        size = config.categorical_num, config.categorical_range
        return CategoricalValues(action, *size, device, sigma=config.categorical_sigma, reduce=reduce)
    return ScalarValues(action, reduce, config.clip_epsilon)


def with_values(spec: AgentSpec, config: OffPolicyConfig) -> AgentSpec:
    """Return the spec with the outputs that a critic has for each value, as its networks need to know."""
    numbers = {"quantile": config.quantile_num, "categorical": config.categorical_num}
    return replace(spec, action=replace(spec.action, values=numbers.get(config.value_head, 1)))
