"""Actions of a deterministic policy, with Gaussian noise while exploring."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from algorithm.actions.continuous import continuous_part
from algorithm.actions.noise import Noise
from algorithm.core.data import Float
from algorithm.core.spec import Z_LIMIT
from algorithm.nn.distributions import HybridAction, TanhNormal
from algorithm.ops.densities import normal_logp

_LARGEST = math.tanh(Z_LIMIT)


class Deterministic:
    """Continuous part u = tanh(m), m the mean of the policy's output; its standard deviation is not used.

    std: of the noise ε while exploring, u = clip(tanh(m) + ε, −1, 1) (arXiv 1802.09477, algorithm 1)
    exploring: there is noise
    """

    def __init__(self, std: float, *, exploring: bool = True) -> None:
        self._log_std, self._exploring = math.log(std), exploring

    @staticmethod
    def squash(z: Float) -> Float:
        """Return u = tanh(z)."""
        return np.tanh(z)

    def act(self, policy: HybridAction, normal: Tensor | None, noise: Noise) -> tuple[Tensor, Tensor | None]:
        """Return z [N, A_c] within ±Z_LIMIT, and the log-density [N] of its u before it is clipped."""
        mean = continuous_part(policy).mean
        part = noise.widen(TanhNormal(mean.tanh(), torch.zeros_like(mean) + self._log_std))
        if normal is None or not self._exploring:
            z, u = mean.clamp(-Z_LIMIT, Z_LIMIT), part.mean
        else:
            u = (part.mean + part.log_std.exp() * normal).clamp(-_LARGEST, _LARGEST)
            z = 0.5 * (u.log1p() - (-u).log1p())  # artanh
        return z, normal_logp(u, part.mean, part.log_std)

    def sample(self, policy: HybridAction, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return u [P, A_c], whatever the noise, and zeros [P]."""
        u = continuous_part(policy).mean.tanh()
        return u, u.new_zeros(u.shape[:-1])

    def log_ratio(self, policy: HybridAction, z: Tensor, behaviour_logp: Tensor) -> Tensor:
        """Raise NotImplementedError: no target of TD3 is corrected."""
        raise NotImplementedError("a deterministic policy has no density")
