"""Critics whose outputs are a distribution of the return: quantiles, or a histogram."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import override

from algorithm.agents.off_policy.records import CriticTarget
from algorithm.agents.off_policy.values.scalar import Reduce, Values
from algorithm.core.spec import ActionSpec
from algorithm.ops.distributional import cross_entropy, histogram, midpoints, quantile_huber, truncated
from algorithm.ops.shapes import masked_mean, valid_share


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
