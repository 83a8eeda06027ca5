"""Batch normalisation whose statistics move only behind a step that was taken, and RMS normalisation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.ops import library

EPSILON = 1e-3
"""Addend of the variance (sbx and sb3-contrib: CrossQ)."""

RMS_EPSILON = 1e-6
"""Addend of the mean square of a row (FlashSAC, arXiv 2604.04539)."""

MOMENTUM = 0.03
"""Share of a batch's statistics in the running ones, at each step. With 0.01 Q was 1.6 times as far off."""

WARM_UP = 100_000
"""Steps of a layer without the correction of batch renormalisation, as in CrossQ (arXiv 1902.05605)."""

LARGEST_R, LARGEST_D = 3.0, 5.0
"""Bounds of that correction (arXiv 1702.03275, section 3)."""


@dataclass
class _Use:
    """Present use of the norms of some networks.

    uses_batch: they normalise by the batch, else by the running statistics
    norm_ready: they may be past their warm-up
    share:      [rows, 1] of each row in the statistics; None: all alike
    """

    uses_batch: bool = False
    norm_ready: bool = False
    share: Tensor | None = None


class BatchNorm(nn.Module):
    """Normalisation of features by mean and variance over the batch (arXiv 1502.03167, 1702.03275).

    By itself, and while acting, it normalises by the running statistics. Inside
    :meth:`BatchStatistics.of_batch` it normalises by those of the batch, which have a gradient, and notes
    them. :meth:`commit` moves the running ones. Nothing else does.

    After ``WARM_UP`` steps of its own it renormalises: ``x̂ = (x − μ_B)/σ_B · r + d`` with ``r = clip(σ_B/σ)``
    and ``d = clip((μ_B − μ)/σ)``, neither with a gradient. Variances are biased, divided by the rows.

    size:    features
    shifts:  β is learned. Without it β stays 0, where the next batch norm would take it away again.
    epsilon: addend of the variance
    """

    bias: Tensor
    mean: Tensor
    var: Tensor
    steps: Tensor
    seen_mean: Tensor
    seen_var: Tensor

    def __init__(self, size: int, *, shifts: bool = True, epsilon: float = EPSILON) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(size))
        if shifts:
            self.bias = nn.Parameter(torch.zeros(size))
        else:
            self.register_buffer("bias", torch.zeros(size), persistent=False)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("seen_mean", torch.zeros(size), persistent=False)
        self.register_buffer("seen_var", torch.ones(size), persistent=False)
        self.use = _Use()

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Return [..., size] of x [..., size]."""
        if not self.use.uses_batch:
            factor = self.weight * torch.rsqrt(self.var + self.epsilon)
            return torch.addcmul(self.bias - self.mean * factor, x, factor)
        if self.use.share is not None:
            return self._weighted(x, self.use.share)
        weight: Tensor = self.weight
        bias = self.bias
        if self.use.norm_ready:
            with torch.no_grad():
                r, d = self._correction(*_moments(x, self.epsilon))
            # r and d are a factor and an addend behind the plain norm: γ (x̂ r + d) + β.
            weight, bias = weight * r, weight * d + bias
        out, mean, inverse = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, self.epsilon)
        self._note(mean.detach(), inverse.detach().pow(-2.0).sub_(self.epsilon))
        return out

    def _weighted(self, x: Tensor, share: Tensor) -> Tensor:
        mean = (x * share).sum(0)
        centred = x - mean
        var = (centred.square() * share).sum(0)
        self._note(mean.detach(), var.detach())
        weight: Tensor = self.weight
        bias = self.bias
        if self.use.norm_ready:
            r, d = self._correction(mean.detach(), var.detach())
            weight, bias = weight * r, weight * d + bias
        return torch.addcmul(bias, centred, torch.rsqrt(var + self.epsilon) * weight)

    def _note(self, mean: Tensor, var: Tensor) -> None:
        self.seen_mean.copy_(mean)
        self.seen_var.copy_(var)

    def _correction(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return r and d, which are 1 and 0 while the layer warms up."""
        std = torch.sqrt(self.var + self.epsilon)
        r = (torch.sqrt(var + self.epsilon) / std).clamp(1 / LARGEST_R, LARGEST_R)
        d = ((mean - self.mean) / std).clamp(-LARGEST_D, LARGEST_D)
        warm = self.steps >= WARM_UP
        return torch.where(warm, r, 1.0), torch.where(warm, d, 0.0)

    @torch.no_grad()
    def commit(self, usable: Tensor) -> None:
        """Move the running statistics towards those that were noted; ``usable`` [] 0 leaves them."""
        for running, seen in ((self.mean, self.seen_mean), (self.var, self.seen_var)):
            running.copy_(torch.where(usable, running.lerp(seen, MOMENTUM), running))
        self.steps.add_(usable)


class RmsNorm(nn.Module):
    """Normalisation of each row by its length: x·w/√(mean x² + ε) (arXiv 1910.07467, equation 4).

    size: features
    """

    lib = library.TORCH

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Return [..., size] of x [..., size]."""
        lib = self.lib
        out: Tensor = x * lib.rsqrt(lib.square(x).mean(-1)[..., None] + RMS_EPSILON) * self.weight
        return out


class BatchStatistics:
    """Batch norms of networks, by the statistics of a batch inside :meth:`of_batch`, else by running ones.

    networks:   those whose running statistics move
    copies:     other modules that run in their place, such as those of an ensemble's back ends
    norm_ready: a layer may be past its warm-up
    """

    def __init__(self, networks: Iterable[nn.Module], copies: Iterable[nn.Module] = ()) -> None:
        self._moving = _norms(list(networks))
        self._all = [*self._moving, *_norms(copies)]
        self._use = self._all[0].use if self._all else _Use()  # the same for all that hold these layers
        for layer in self._all:
            layer.use = self._use
        self.norm_ready = False

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return len(self._moving) > 0

    @contextmanager
    def of_batch(self, share: Tensor | None = None) -> Iterator[None]:
        """Normalise by the batches of the passes inside, and note their statistics.

        share: [rows] of each row in the statistics, with the sum 1; None: all rows alike
        """
        self._use.uses_batch = True
        self._use.norm_ready = self.norm_ready
        self._use.share = None if share is None else share.unsqueeze(-1)
        try:
            yield
        finally:
            self._use.uses_batch = False
            self._use.share = None

    def past_warm_up(self) -> bool:
        """Set ``norm_ready`` before an update; return it. On a GPU it is true: reading steps would wait."""
        steps = self._all[0].steps if self._all else None
        self.norm_ready = steps is not None and (
            steps.device.type != "cpu" or float(steps.numpy()) >= WARM_UP
        )
        return self.norm_ready

    @torch.no_grad()
    def commit(self, usable: Tensor) -> None:
        """Move the running statistics towards those of the last batch, if its step was taken.

        usable: [] bool, whether it was; else everything stays as it is
        """
        for layer in self._moving:
            layer.commit(usable)


def _moments(x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance over the rows; torch's var_mean takes five times as long on a CPU."""
    _, mean, inverse = torch.native_batch_norm(x, None, None, None, None, True, 0.0, epsilon)
    return mean, inverse.pow(-2.0).sub_(epsilon)


def _norms(modules: Iterable[nn.Module]) -> list[BatchNorm]:
    return [layer for module in modules for layer in module.modules() if isinstance(layer, BatchNorm)]


def has_batch_norm(module: nn.Module) -> bool:
    """Return whether the network normalises by a batch."""
    return bool(_norms([module]))
