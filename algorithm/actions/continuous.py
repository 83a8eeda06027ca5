"""Continuous part of an action: a Gaussian, squashed or clipped, or none; exploration noise on both parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from algorithm.core.data import Float
from algorithm.core.spec import Z_LIMIT
from algorithm.nn.protocols import HybridAction, TanhNormal
from algorithm.ops import library
from algorithm.ops.densities import normal_logp, tanh_normal_sample

_LEAST = torch.finfo(torch.float32).min


class SquashedNormal:
    """Squashed Gaussian, whose log-density is the last column of ``behaviour_logp``."""

    @staticmethod
    def squash(z: Float) -> Float:
        """Return u = tanh(z)."""
        return np.tanh(z)

    def act(self, policy: HybridAction, normal: Tensor | None, noise: Noise) -> tuple[Tensor, Tensor | None]:
        """Return z [N, A_c] within ±Z_LIMIT, and the log-density [N] of u = tanh(z).

        normal: [N, A_c] standard normal numbers; None for the mode
        """
        part = continuous_part(policy)
        lib, z = library.of(part.mean), part.mean
        if normal is not None:
            part = noise.widen(part)
            # The same z as of ``part.rsample``, bit for bit, without computing its density.
            z = part.mean + lib.exp(part.log_std) * normal
        z = lib.clip(z, -Z_LIMIT, Z_LIMIT)
        # A mean far beyond the limit, of an extreme observation, makes the logarithm of the density −∞.
        return z, lib.at_least(part.logp(z), _LEAST)

    def sample(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return a reparameterised u [P, A_c] and its log-density [P], of normal noise [P, A_c]."""
        part = continuous_part(policy)
        z, logp = tanh_normal_sample(part.mean, part.log_std, noise)
        return z.tanh(), logp

    def log_ratio(self, policy: HybridAction, z: Tensor, behaviour_logp: Tensor) -> Tensor:
        """Return log π − log μ [...] of z [..., A_c]. Both are densities of u: the Jacobian cancels."""
        return continuous_part(policy).logp(z) - behaviour_logp[..., -1]


class ClippedNormal:
    """Gaussian z, clipped to ±1 for the environment (``squash: clip``); the log-density is that of z.

    The environment sees u = clip(z). The reference implementations of PPO and A2C learn with the density of z
    (Huang et al., The 37 Implementation Details of PPO, 23 and 27).
    """

    @staticmethod
    def squash(z: Float) -> Float:
        """Return u = clip(z, −1, 1)."""
        return np.clip(z, np.float32(-1.0), np.float32(1.0))

    def act(self, policy: HybridAction, normal: Tensor | None, noise: Noise) -> tuple[Tensor, Tensor | None]:
        """Return z [N, A_c] and its log-density [N]; normal: [N, A_c], None for the mode."""
        part = continuous_part(policy)
        z = part.mean
        if normal is not None:
            z = part.mean + library.of(z).exp(part.log_std) * normal
        return z, normal_logp(z, part.mean, part.log_std)

    def sample(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return a reparameterised u [P, A_c] and the log-density [P] of its z, of normal noise [P, A_c]."""
        part = continuous_part(policy)
        z = part.mean + part.log_std.exp() * noise
        return z.clamp(-1.0, 1.0), normal_logp(z, part.mean, part.log_std)

    def log_ratio(self, policy: HybridAction, z: Tensor, behaviour_logp: Tensor) -> Tensor:
        """Return log π − log μ [...] of z [..., A_c]."""
        part = continuous_part(policy)
        return normal_logp(z, part.mean, part.log_std) - behaviour_logp[..., -1]


class RecordedNormal(ClippedNormal):
    """Clipped Gaussian whose mean and log σ [N, 2 A_c] are recorded, in place of a log-density."""

    @override
    def act(self, policy: HybridAction, normal: Tensor | None, noise: Noise) -> tuple[Tensor, Tensor | None]:
        """Return z [N, A_c], and the mean and log σ of its distribution [N, 2 A_c]."""
        part = continuous_part(policy)
        lib = library.of(part.mean)
        z = part.mean if normal is None else part.mean + lib.exp(part.log_std) * normal
        return z, lib.cat([part.mean, part.log_std], -1)


class NoContinuous:
    """Continuous part of an action without one: u is empty, its log-density 0."""

    @staticmethod
    def squash(z: Float) -> Float:
        """Return z, which is empty."""
        return z

    def act(self, policy: HybridAction, normal: Tensor | None, noise: Noise) -> tuple[Tensor, None]:
        """Return an empty z [N, 0], without a log-density."""
        return logits_of(policy)[:, :0], None

    def sample(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return an empty u [P, 0], and zeros [P] for its log-density."""
        logits = logits_of(policy)
        return logits.new_zeros(*logits.shape[:-1], 0), logits.new_zeros(logits.shape[:-1])

    def log_ratio(self, policy: HybridAction, z: Tensor, behaviour_logp: Tensor) -> Tensor:
        """Return zeros [...]: an absent part has the ratio 1."""
        return behaviour_logp.new_zeros(behaviour_logp.shape[:-1])


def continuous_part(policy: HybridAction) -> TanhNormal:
    """Return the distribution of the continuous part; the dry run has checked that there is one."""
    assert policy.continuous is not None
    return policy.continuous


def logits_of(policy: HybridAction) -> Tensor:
    """Return the logits of the discrete part; the dry run has checked that there are some."""
    assert policy.logits is not None
    return policy.logits


class Noise(Protocol):
    """Exploration noise ν [N, 1] of N agents (``action_noise``)."""

    def widen(self, part: TanhNormal) -> TanhNormal:
        """Return the continuous distribution [N, A_c] with added noise."""

    def mix(self, probs: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        """Return the discrete distribution [N, ΣN] with added noise; uniform: returns the uniform one."""


class NoNoise:
    """Noise of 0: distributions are not changed."""

    def widen(self, part: TanhNormal) -> TanhNormal:
        """Return ``part``."""
        return part

    def mix(self, probs: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        """Return ``probs``."""
        return probs


class SpreadNoise:
    """Noise ν that rises linearly from ``low`` for the first agent to ``high`` for the last.

    Continuous: z ~ Normal(m, √(σ² + ν²)), which is the policy's z plus ν·N(0, 1). Discrete: (1 − ν) π + ν/n.
    """

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def _of(self, like: Tensor) -> Tensor:
        noise = torch.linspace(self._low, self._high, len(like)).unsqueeze(1)
        return noise.numpy() if isinstance(like, np.ndarray) else noise.to(like.device)

    def widen(self, part: TanhNormal) -> TanhNormal:
        """Return the distribution with the variance σ² + ν²."""
        lib = library.of(part.mean)
        variance = lib.exp(2.0 * part.log_std) + lib.square(self._of(part.mean))
        return TanhNormal(part.mean, 0.5 * lib.log(variance))

    def mix(self, probs: Tensor, uniform: Callable[[], Tensor]) -> Tensor:
        """Return the mixture (1 − ν) π + ν/n with the uniform distribution, [N, ΣN]."""
        mixed: Tensor = library.of(probs).lerp(probs, uniform(), self._of(probs))
        return mixed
