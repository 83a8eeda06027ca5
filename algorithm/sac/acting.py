"""How each part of an action is taken: from a distribution, with extra noise, or greedily by value.

N agents act at once; ν [N, 1] is the extra noise of each. What is returned with an action is the
log-probability with which it was really taken, so that importance ratios are true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.ops import discrete as ops
from algorithm.sac.heads import continuous_part, logits_of
from algorithm.spec import Z_LIMIT, ActionSpec

_LEAST = torch.finfo(torch.float32).min


class Noise(Protocol):
    """What an agent adds to the actions of its policy (``action_noise``)."""

    def widen(self, part: TanhNormal) -> TanhNormal:
        """The continuous distribution [N, A_c] with the noise in it."""
        ...

    def mix(self, probs: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        """The discrete distribution [N, ΣN] with the noise in it; ``uniform()`` gives that of all allowed."""
        ...


class NoNoise:
    """The policy itself."""

    def widen(self, part: TanhNormal) -> TanhNormal:
        """See :class:`Noise`."""
        return part

    def mix(self, probs: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        """See :class:`Noise`."""
        return probs


class SpreadNoise:
    """ν from ``low`` to ``high``, spread linearly over the agents in their order.

    Continuous: z ~ Normal(m, √(σ² + ν²)), which is the policy's z plus ν·N(0, 1). Discrete: (1 − ν) π + ν/n.
    """

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high
        self._strength = torch.empty(0, 1)

    def _of(self, like: Tensor) -> Tensor:
        if len(self._strength) != len(like):
            self._strength = torch.linspace(self._low, self._high, len(like), device=like.device).unsqueeze(1)
        return self._strength

    def widen(self, part: TanhNormal) -> TanhNormal:
        """See :class:`Noise`."""
        variance = (2.0 * part.log_std).exp() + self._of(part.mean).square()
        return TanhNormal(part.mean, 0.5 * variance.log())

    def mix(self, probs: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        """See :class:`Noise`."""
        return probs.lerp(uniform(), self._of(probs).expand_as(probs))


class ActContinuous:
    """Takes z from the squashed Gaussian."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def __call__(
        self, policy: HybridAction, generator: torch.Generator, *, greedy: bool
    ) -> tuple[Tensor, Tensor | None]:
        """z [N, A_c], clamped to ±Z_LIMIT, and the log-density [N] of its u; ``greedy`` takes the mode."""
        part = continuous_part(policy)
        if greedy:
            z = part.mean
        else:
            part = self._noise.widen(part)
            # The z of ``part.rsample``, bit for bit, without the density that goes with it.
            noise = torch.randn(part.mean.shape, generator=generator, device=part.mean.device)
            z = part.mean + part.log_std.exp() * noise
        z = z.clamp(-Z_LIMIT, Z_LIMIT)
        # A mean far beyond the limit, of an extreme observation, makes the logarithm of the density −∞.
        return z, part.logp(z).clamp(min=_LEAST)


class ActNothing:
    """For agents without continuous actions."""

    def __call__(
        self, policy: HybridAction, generator: torch.Generator, *, greedy: bool
    ) -> tuple[Tensor, None]:
        """An empty z."""
        logits = logits_of(policy)
        return logits.new_zeros(len(logits), 0), None


class DiscreteActing(Protocol):
    """Takes one choice of each branch."""

    def __call__(
        self,
        policy: HybridAction,
        mask: Tensor,
        mean_q: Callable[[], Tensor],
        generator: torch.Generator,
        *,
        greedy: bool,
    ) -> tuple[Tensor, Tensor]:
        """One-hots [N, ΣN] and their joint log-probability [N]; ``greedy`` takes the likeliest.

        mask [N, ΣN]; ``mean_q`` gives the critics' mean outputs [N, ΣN] at the continuous action taken.
        """
        ...


class ActBranches:
    """Samples from the categorical distributions."""

    def __init__(self, action: ActionSpec, noise: Noise) -> None:
        self._branches, self._noise = action.branches, noise

    def __call__(
        self,
        policy: HybridAction,
        mask: Tensor,
        mean_q: Callable[[], Tensor],
        generator: torch.Generator,
        *,
        greedy: bool,
    ) -> tuple[Tensor, Tensor]:
        """See :class:`DiscreteActing`."""
        logits = logits_of(policy)
        log_probs, probs = ops.branch_log_probs(logits, mask, self._branches)
        if greedy:
            onehot = ops.greedy_probs(logits, mask, self._branches)
            return onehot, (onehot * log_probs).sum(-1)
        probs = self._noise.mix(probs, lambda: ops.uniform_probs(mask, self._branches, probs.dtype))
        drawn = torch.rand(probs.shape, generator=generator, device=probs.device)
        onehot = ops.sample_branches(probs, self._branches, drawn)
        taken = torch.where(onehot > 0, probs, 1.0)
        return onehot, taken.log().sum(-1)


class ActGreedily:
    """The choice of the largest mean Q; each branch is uniformly random with probability ε instead.

    Extra noise ν raises ε to 1 − (1 − ε)(1 − ν). The stored log-probability is 0: such a part has ratio 1.
    """

    def __init__(self, action: ActionSpec, noise: Noise, epsilon: float) -> None:
        self._branches, self._noise, self._epsilon = action.branches, noise, epsilon

    def __call__(
        self,
        policy: HybridAction,
        mask: Tensor,
        mean_q: Callable[[], Tensor],
        generator: torch.Generator,
        *,
        greedy: bool,
    ) -> tuple[Tensor, Tensor]:
        """See :class:`DiscreteActing`."""
        onehot = ops.greedy_probs(mean_q(), mask, self._branches)
        if not greedy:
            uniform = ops.uniform_probs(mask, self._branches, onehot.dtype)
            probs = self._noise.mix(onehot.lerp(uniform, self._epsilon), lambda: uniform)
            drawn = torch.rand(probs.shape, generator=generator, device=probs.device)
            onehot = ops.sample_branches(probs, self._branches, drawn)
        return onehot, onehot.new_zeros(len(onehot))


class ActNoBranches:
    """For agents without discrete actions."""

    def __call__(
        self,
        policy: HybridAction,
        mask: Tensor,
        mean_q: Callable[[], Tensor],
        generator: torch.Generator,
        *,
        greedy: bool,
    ) -> tuple[Tensor, None]:
        """Empty one-hots."""
        return mask.to(torch.get_default_dtype()), None
