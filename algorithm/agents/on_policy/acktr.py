"""ACKTR: A2C's updates along the natural gradient (Wu et al. 2017, arXiv 1708.05144)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from typing_extensions import override

from algorithm.agents.on_policy.family_config import AcktrConfig
from algorithm.agents.on_policy.learner import OnPolicyLearner
from algorithm.agents.on_policy.rollout import Minibatch
from algorithm.nn.learning.kfac import FlatKfac
from algorithm.ops.shapes import added


class AcktrLearner(OnPolicyLearner):
    """Learner that measures the Fisher matrix of policy and values on the rollout that it learns from."""

    _optimiser: FlatKfac

    @override
    def _make_optimiser(self, modules: Sequence[nn.Module]) -> FlatKfac:
        own = self._own
        assert isinstance(own, AcktrConfig)
        return FlatKfac(
            modules,
            own.learning_rate,
            skipped=self._skipped,
            kl_clip=own.kl_clip,
            damping=own.damping,
            stat_decay=own.stat_decay,
            momentum=own.momentum,
            inverse_every=own.inverse_every,
        )

    @override
    def _evaluate(self, part: Minibatch) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
        with self._optimiser.recording():
            log_ratio, entropies, values = super()._evaluate(part)
        # The rollout's actions are samples of the policy, and values those of N(V, 1) (section 3.1).
        size, device = len(log_ratio), log_ratio.device
        noise = [torch.randn(size, generator=self._generator).to(device) for _ in values]
        self._optimiser.measure(sampled_loss(log_ratio, values, noise), size)
        return log_ratio, entropies, values

    @override
    def _step(self, part: Minibatch, *, first: bool) -> dict[str, Tensor]:
        found = super()._step(part, first=first)
        return {**found, "acktr/step_scale": self._optimiser.scale}


def sampled_loss(log_prob: Tensor, values: Sequence[Tensor], noise: Sequence[Tensor]) -> Tensor:
    """Return ``Σ −log π(a) + ½ Σ_g (V_g − sg(V_g + ξ_g))²``, −log p of sampled actions and values.

    log_prob: [M] log π(a), or it and a constant; values: [M] V_g each; noise: [M] ξ_g ~ N(0, 1)
    """
    of_values = added(0.5 * (v - (v + one).detach()).square() for v, one in zip(values, noise, strict=True))
    return (of_values - log_prob).sum()
