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
"""Number added to the divisors of Adam and RMSprop (The 37 Implementation Details, 3)."""


class Descent:
    """Gradient descent on the loss (arXiv 1707.06347, algorithm 1; arXiv 1602.01783, section 4).

    optimiser: of all networks
    """

    def __init__(self, optimiser: FlatOptimiser) -> None:
        self.optimiser = optimiser

    def recorded(self) -> AbstractContextManager[None]:
        """Return the context for the forward passes of the loss, in which an optimiser may record layers."""
        return nullcontext()

    def measure(self, log_ratio: Tensor, values: Sequence[Tensor], generator: torch.Generator) -> None:
        """Measure quantities that a step needs besides the gradient; here none.

        log_ratio: [M] log ρ with gradient; values: [M] V of each horizon, with gradient
        """

    def metrics(self) -> Mapping[str, Tensor]:
        """Return further metrics of the last step, by name."""
        return {}


class NaturalDescent(Descent):
    """Natural gradient descent within a trust region (ACKTR, Wu et al. 2017, arXiv 1708.05144).

    optimiser: measures the Fisher matrix of policy and values in the forward passes of the same step
    """

    optimiser: FlatKfac

    @override
    def recorded(self) -> AbstractContextManager[None]:
        """Return a context in which inputs and outputs of all layers are recorded."""
        return self.optimiser.recording()

    @override
    def measure(self, log_ratio: Tensor, values: Sequence[Tensor], generator: torch.Generator) -> None:
        """Measure the Fisher matrix (section 3.1) of actions sampled from π, and values from N(V, 1)."""
        size, device = len(log_ratio), log_ratio.device
        noise = [torch.randn(size, generator=generator).to(device) for _ in values]
        self.optimiser.measure(sampled_loss(log_ratio, values, noise), size)

    @override
    def metrics(self) -> Mapping[str, Tensor]:
        """Return the factor by which the trust region shortened the last step."""
        return {"acktr/step_scale": self.optimiser.scale}


def make_descent(
    keys: OwnConfig, modules: Sequence[nn.Module], *, max_norm: float, skipped: Tensor
) -> Descent:
    """Return Adam for PPO, K-FAC for ACKTR, and RMSprop for A2C and A3C.

    keys:    the family's block of keys, whose class selects the optimiser
    modules: all trained networks; max_norm, skipped: as of :class:`FlatOptimiser`
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

    log_prob: [M] log π(a), up to a constant; values: [M] V_g of each horizon; noise: [M] ξ_g ~ N(0, 1)
    """
    of_values = total(0.5 * (v - (v + xi).detach()).square() for v, xi in zip(values, noise, strict=True))
    return (of_values - log_prob).sum()
