"""Descent of the loss of a minibatch: by Adam in PPO, by RMSprop in A2C and A3C, by K-FAC in ACKTR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.agents.on_policy.family_config import AcktrConfig, OwnConfig, PpoConfig
from algorithm.nn.learning.kfac import FlatKfac
from algorithm.nn.learning.optimiser import FlatAdam, FlatOptimiser, FlatRms
from algorithm.ops.shapes import total

EPSILON = 1e-5
"""Addend of the divisors of Adam and RMSprop (The 37 Implementation Details, 3)."""


class Descent:
    """Steps along the gradient of the loss (arXiv 1707.06347, algorithm 1; arXiv 1602.01783, section 4).

    optimiser: of all networks
    """

    def __init__(self, optimiser: FlatOptimiser) -> None:
        self.optimiser = optimiser

    def recorded(self) -> AbstractContextManager[None]:
        """Return the context of the passes that the loss is made of."""
        return nullcontext()

    def measure(self, log_ratio: Tensor, values: Sequence[Tensor], generator: torch.Generator) -> None:
        """Measure what a step needs to know besides the gradient: nothing."""

    def metrics(self) -> Mapping[str, Tensor]:
        """Return metrics of the last step."""
        return {}


class NaturalDescent(Descent):
    """Steps along the natural gradient within a trust region (ACKTR, Wu et al. 2017, arXiv 1708.05144).

    optimiser: measures the Fisher matrix of policy and values on the passes that it then takes a step for
    """

    optimiser: FlatKfac

    @override
    def recorded(self) -> AbstractContextManager[None]:
        """Return a context in which inputs and outputs of all layers are recorded."""
        return self.optimiser.recording()

    @override
    def measure(self, log_ratio: Tensor, values: Sequence[Tensor], generator: torch.Generator) -> None:
        """Measure the Fisher matrix (section 3.1): the actions are samples of π, values those of N(V, 1)."""
        size, device = len(log_ratio), log_ratio.device
        noise = [torch.randn(size, generator=generator).to(device) for _ in values]
        self.optimiser.measure(sampled_loss(log_ratio, values, noise), size)

    @override
    def metrics(self) -> Mapping[str, Tensor]:
        """Return the factor by which the trust region has shortened the last step."""
        return {"acktr/step_scale": self.optimiser.scale}


def make_descent(
    keys: OwnConfig, modules: Sequence[nn.Module], *, max_norm: float, skipped: Tensor
) -> Descent:
    """Return the descent of a family.

    keys: the family's block, whose class tells the family
    modules: all that is trained; max_norm, skipped: as of :class:`FlatOptimiser`
    """
    rate = keys.learning_rate
    if isinstance(keys, PpoConfig):
        return Descent(FlatAdam(modules, rate, max_norm=max_norm, skipped=skipped, epsilon=EPSILON))
    if isinstance(keys, AcktrConfig):
        return NaturalDescent(
            FlatKfac(
                modules,
                rate,
                skipped=skipped,
                kl_clip=keys.kl_clip,
                damping=keys.damping,
                stat_decay=keys.stat_decay,
                momentum=keys.momentum,
                inverse_every=keys.inverse_every,
            )
        )
    return Descent(
        FlatRms(
            modules,
            rate,
            max_norm=max_norm,
            skipped=skipped,
            epsilon=EPSILON,
            inside=keys.use_tf_rms,
        )
    )


def sampled_loss(log_prob: Tensor, values: Sequence[Tensor], noise: Sequence[Tensor]) -> Tensor:
    """Return ``Σ −log π(a) + ½ Σ_g (V_g − sg(V_g + ξ_g))²``, −log p of sampled actions and values.

    log_prob: [M] log π(a), or it and a constant; values: [M] V_g each; noise: [M] ξ_g ~ N(0, 1)
    """
    of_values = total(0.5 * (v - (v + one).detach()).square() for v, one in zip(values, noise, strict=True))
    return (of_values - log_prob).sum()
