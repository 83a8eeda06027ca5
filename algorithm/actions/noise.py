"""Noise on the actions of an exploring agent's policy (``action_noise``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from algorithm.nn.distributions import TanhNormal


class Noise(Protocol):
    """Extra noise ν [N, 1] of N agents."""

    def widen(self, part: TanhNormal) -> TanhNormal:
        """Return the continuous distribution [N, A_c] with the noise in it."""
        ...

    def mix(self, probs: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        """Return the discrete distribution [N, ΣN] with the noise in it; ``uniform()``: of all allowed."""
        ...


class NoNoise:
    """Absent noise: the policy itself."""

    def widen(self, part: TanhNormal) -> TanhNormal:
        """Return ``part``."""
        return part

    def mix(self, probs: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        """Return ``probs``."""
        return probs


class SpreadNoise:
    """Noise ν from ``low`` to ``high``, spread linearly over the agents in their order.

    Continuous: z ~ Normal(m, √(σ² + ν²)), which is the policy's z plus ν·N(0, 1). Discrete: (1 − ν) π + ν/n.
    """

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def _of(self, like: Tensor) -> Tensor:
        return torch.linspace(self._low, self._high, len(like), device=like.device).unsqueeze(1)

    def widen(self, part: TanhNormal) -> TanhNormal:
        """Return the distribution with the variance σ² + ν²."""
        variance = (2.0 * part.log_std).exp() + self._of(part.mean).square()
        return TanhNormal(part.mean, 0.5 * variance.log())

    def mix(self, probs: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        """Return the mixture with the uniform distribution."""
        return probs.lerp(uniform(), self._of(probs).expand_as(probs))
